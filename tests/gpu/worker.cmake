shunt_test(
  NAME gpu_worker_commands_test
  SRCS worker_commands_test.cc worker_executors.h
  DEPS shunt::gpu_worker
  LABELS unit core)
