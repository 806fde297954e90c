# Operations on GPU memory from end to end: libshunt, a real shuntd, its worker with the CPU as
# executor, over a driver without a GPU.
add_executable(gpu_ops_worker ops_worker_main.cc worker_executors.h)
target_link_libraries(gpu_ops_worker PRIVATE shunt_flags shunt::gpu_worker_program shunt::collectives)
set_target_properties(gpu_ops_worker PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)

function(shunt_gpu_ops_test NAME)
  shunt_test(
    NAME gpu_ops_${NAME}_test
    SRCS ops_${NAME}_test.cc
    DEPS shunt::client_harness gpu_test_support
    LABELS client gpu-fake
    TIMEOUT 300
    ENVIRONMENT SHUNTD=$<TARGET_FILE:shuntd> SHUNT_CUDA_LIBRARY=${SHUNT_FAKE_CUDA}
                SHUNT_OPS_WORKER=$<TARGET_FILE:gpu_ops_worker>)
  if(TARGET gpu_ops_${NAME}_test)
    add_dependencies(gpu_ops_${NAME}_test shuntd fake_cuda gpu_ops_worker)
  endif()
endfunction()

shunt_gpu_ops_test(captures)
shunt_gpu_ops_test(collectives)
shunt_gpu_ops_test(failures)
shunt_gpu_ops_test(transfers)
