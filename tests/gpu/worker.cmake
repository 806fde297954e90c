shunt_test(
  NAME gpu_worker_commands_test
  SRCS worker_commands_test.cc worker_executors.h
  DEPS shunt::gpu_worker
  LABELS unit core)

# A worker of the supervisor's tests, which need a driver without a GPU (SHUNT_FAKE_CUDA, below).
add_executable(gpu_cpu_worker cpu_worker_main.cc cpu_worker.h worker_executors.h)
target_link_libraries(gpu_cpu_worker PRIVATE shunt_flags shunt::gpu_worker_program)
set_target_properties(gpu_cpu_worker PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
