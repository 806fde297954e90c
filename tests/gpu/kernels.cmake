# The kernels' tests. Those labelled gpu want a GPU and are skipped without one.
shunt_test(
  NAME gpu_kernels_body_test
  SRCS kernels_body_test.cc kernels_inputs.h
  DEPS shunt::collectives shunt::gpu_kernels
  LABELS unit core)
if(TARGET gpu_kernels_body_test)
  # As the kernels: nothing fuses.
  target_compile_options(gpu_kernels_body_test PRIVATE -ffp-contract=off)
endif()
