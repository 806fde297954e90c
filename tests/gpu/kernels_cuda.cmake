# Of the kernels' tests those that need a driver: a fake one, or a GPU.
shunt_test(
  NAME gpu_executor_test
  SRCS executor_test.cc executor_failures_test.cc executor_world.h kernels_inputs.h
  DEPS gpu_test_support shunt::collectives shunt::gpu_kernels
  LABELS unit gpu-fake
  ENVIRONMENT SHUNT_CUDA_LIBRARY=${SHUNT_FAKE_CUDA})
add_dependencies(gpu_executor_test fake_cuda)
shunt_test(
  NAME gpu_executor_device_test
  SRCS executor_test.cc executor_world.h kernels_inputs.h device_main.cc
  DEPS gpu_test_support shunt::collectives shunt::gpu_kernels
  LABELS gpu)
shunt_test(
  NAME gpu_kernels_device_test
  SRCS
    kernels_device_test.cc
    kernels_device_copies_test.cc
    kernels_device_signals_test.cc
    kernels_device_world.h
    kernels_inputs.h
    device_main.cc
  DEPS gpu_test_support shunt::collectives shunt::gpu_kernels
  LABELS gpu)
