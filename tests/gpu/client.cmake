# libshunt's own part, with a daemon that only remembers.
shunt_test(
  NAME gpu_client_core_test
  SRCS client_gates_test.cc client_memory_test.cc client_script.cc client_script.h
  DEPS gpu_test_support shunt::client_core shunt::proto
  LABELS unit client gpu-fake
  ENVIRONMENT SHUNT_CUDA_LIBRARY=${SHUNT_FAKE_CUDA})
add_dependencies(gpu_client_core_test fake_cuda)
