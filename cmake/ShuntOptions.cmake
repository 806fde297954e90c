# What the person who configures can choose, and the compiler flags that hold for every target.

option(SHUNT_WERROR "Turn warnings into errors (on in CI)" OFF)
option(SHUNT_WITH_CUDA "GPU memory and collectives; needs the CUDA toolkit to build" ON)
option(SHUNT_WITH_UCX "RDMA transport" ON)
option(SHUNT_WITH_URING "io_uring storage backend" ON)
option(SHUNT_WITH_S3 "Object storage backend" ON)
option(SHUNT_WITH_GDS "GPUDirect Storage backend" ON)
option(SHUNT_TESTS "Build the tests" ON)
option(SHUNT_FUZZ "Build the fuzz targets with libFuzzer (clang only)" OFF)
set(SHUNT_SANITIZE "" CACHE STRING "address, undefined, thread, or a comma-separated pair that goes together")
set_property(CACHE SHUNT_SANITIZE PROPERTY STRINGS "" address undefined thread "address,undefined")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Every library may end up inside libshunt.so, which shows only its own symbols.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# Checks cost too little to leave them out of any build: no NDEBUG, and line tables for useful traces.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_RELEASE "-O2")

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# A compiler's cache, where there is one and the caller named none.
find_program(SHUNT_CCACHE ccache)
if(SHUNT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SHUNT_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${SHUNT_CCACHE})
endif()

# Flags of our own code; generated code does not take them.
add_library(shunt_flags INTERFACE)
target_compile_options(shunt_flags INTERFACE -Wall -Wextra)
if(SHUNT_WERROR)
  target_compile_options(shunt_flags INTERFACE -Werror)
endif()
target_include_directories(shunt_flags INTERFACE ${PROJECT_SOURCE_DIR})

if(SHUNT_SANITIZE)
  add_compile_options(-O1 -fsanitize=${SHUNT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SHUNT_SANITIZE})
  # The vector kernels for one instruction set only: a sanitizer needs minutes for each.
  add_compile_definitions(HWY_COMPILE_ONLY_STATIC)
endif()
if(SHUNT_FUZZ)
  # Coverage for what the fuzz targets link; the targets themselves get libFuzzer's main function.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
