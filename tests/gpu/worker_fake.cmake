shunt_test(
  NAME gpu_worker_loop_test
  SRCS worker_loop_test.cc worker_executors.h
  DEPS shunt::gpu_worker gpu_test_support
  LABELS unit gpu-fake
  ENVIRONMENT SHUNT_CUDA_LIBRARY=${SHUNT_FAKE_CUDA})
add_dependencies(gpu_worker_loop_test fake_cuda)
