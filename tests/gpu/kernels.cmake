# The kernels' tests. Those labelled gpu want a GPU and are skipped without one.
add_library(gpu_kernels_on_cpu STATIC kernels_on_cpu.cc kernels_on_cpu.h)
target_link_libraries(gpu_kernels_on_cpu PUBLIC shunt::core PRIVATE shunt_flags)
# As the kernels: nothing fuses. The fake driver, a shared library, takes it in.
target_compile_options(gpu_kernels_on_cpu PRIVATE -ffp-contract=off)
set_target_properties(gpu_kernels_on_cpu PROPERTIES POSITION_INDEPENDENT_CODE ON)

shunt_test(
  NAME gpu_kernels_body_test
  SRCS kernels_body_test.cc kernels_inputs.h
  DEPS gpu_kernels_on_cpu shunt::collectives shunt::gpu_kernels
  LABELS unit core)
if(TARGET gpu_kernels_body_test)
  target_compile_options(gpu_kernels_body_test PRIVATE -ffp-contract=off)
endif()
shunt_test(
  NAME gpu_collective_launch_test
  SRCS collective_launch_test.cc kernels_inputs.h
  DEPS gpu_kernels_on_cpu shunt::collectives shunt::gpu_kernels
  LABELS unit core)
