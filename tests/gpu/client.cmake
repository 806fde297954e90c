# libshunt's own part, with a daemon that only remembers.
shunt_test(
  NAME gpu_client_core_test
  SRCS client_gates_test.cc client_memory_test.cc client_script.cc client_script.h
  DEPS gpu_test_support shunt::client_core shunt::proto
  LABELS unit client gpu-fake
  ENVIRONMENT SHUNT_CUDA_LIBRARY=${SHUNT_FAKE_CUDA})
add_dependencies(gpu_client_core_test fake_cuda)

# libshunt on streams, with a real daemon and its worker.
function(shunt_gpu_client_test NAME)
  shunt_test(
    NAME gpu_client_${NAME}_test
    SRCS client_${NAME}_test.cc
    DEPS shunt::client_harness gpu_test_support
    LABELS client gpu-fake
    TIMEOUT 300
    ENVIRONMENT SHUNTD=$<TARGET_FILE:shuntd> SHUNT_CUDA_LIBRARY=${SHUNT_FAKE_CUDA} SHUNT_FAKE_CUDA_DEVICES=2)
  if(TARGET gpu_client_${NAME}_test)
    add_dependencies(gpu_client_${NAME}_test shuntd shunt-gpu-worker fake_cuda)
  endif()
endfunction()

shunt_gpu_client_test(failures)
shunt_gpu_client_test(streams)
