# Everything from outside, all of it packaged by Debian 12 (scripts/dependencies.txt). Targets to link:
#
#   absl::status, absl::statusor, ...   abseil, shared
#   shunt::grpc, shunt::protobuf        gRPC and protobuf, shared; for the daemon, the tools and tests only
#   spdlog::spdlog  CLI11::CLI11  PkgConfig::tomlplusplus  hwy::hwy  PkgConfig::hwloc  PkgConfig::cares  PkgConfig::uring
#   PkgConfig::systemd  civetweb::civetweb
#   prometheus-cpp::core  prometheus-cpp::pull  Catch2::Catch2  ucx::ucp  CURL::libcurl  OpenSSL::Crypto  CUDA::toolkit  Threads::Threads

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# The protobuf compiler and runtime must be found before gRPC's own config file looks for them.
find_package(Protobuf REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(civetweb CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(cares REQUIRED IMPORTED_TARGET libcares)
pkg_check_modules(systemd REQUIRED IMPORTED_TARGET libsystemd)

if(SHUNT_TESTS)
  find_package(Catch2 2 CONFIG REQUIRED)
endif()

# An optional dependency that is asked for but absent is left out, and the summary says so.
if(SHUNT_WITH_UCX)
  find_package(ucx CONFIG QUIET)
endif()
if(SHUNT_WITH_URING)
  pkg_check_modules(uring QUIET IMPORTED_TARGET liburing)
endif()
if(SHUNT_WITH_S3)
  find_package(CURL QUIET)
  find_package(OpenSSL QUIET)
endif()
if(SHUNT_WITH_CUDA)
  find_package(CUDAToolkit 12 QUIET)
endif()

function(shunt_report NAME WANTED FOUND DETAIL)
  if(NOT WANTED)
    message(STATUS "shunt: ${NAME}: off")
  elseif(FOUND)
    message(STATUS "shunt: ${NAME}: ${DETAIL}")
  else()
    message(STATUS "shunt: ${NAME}: not found, left out")
  endif()
endfunction()
message(STATUS "shunt: gRPC ${gRPC_VERSION}, protobuf ${Protobuf_VERSION}, abseil ${absl_VERSION}")
shunt_report("CUDA toolkit" "${SHUNT_WITH_CUDA}" "${CUDAToolkit_FOUND}" "${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}")
shunt_report("UCX" "${SHUNT_WITH_UCX}" "${ucx_FOUND}" "${ucx_VERSION}")
shunt_report("io_uring" "${SHUNT_WITH_URING}" "${uring_FOUND}" "liburing ${uring_VERSION}")
shunt_report("S3 (libcurl)" "${SHUNT_WITH_S3}" "${CURL_FOUND}" "${CURL_VERSION_STRING}")

# Always shared: Debian's static gRPC and protobuf are not position independent. Neither comes into
# libshunt.so, whose messages are encoded by hand.
add_library(shunt_grpc INTERFACE)
add_library(shunt::grpc ALIAS shunt_grpc)
target_link_libraries(shunt_grpc INTERFACE gRPC::grpc++ protobuf::libprotobuf)
add_library(shunt_protobuf INTERFACE)
add_library(shunt::protobuf ALIAS shunt_protobuf)
target_link_libraries(shunt_protobuf INTERFACE protobuf::libprotobuf)
