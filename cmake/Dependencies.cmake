# Everything from outside, all of it packaged by Debian 12 (scripts/dependencies.txt). Targets to link:
#
#   absl::status, absl::statusor, ...   abseil, shared
#   shunt::grpc, shunt::protobuf        gRPC and protobuf; shared, or static where the final target asks (below)
#   spdlog::spdlog  CLI11::CLI11  PkgConfig::tomlplusplus  hwy::hwy  PkgConfig::hwloc  PkgConfig::uring
#   prometheus-cpp::core  prometheus-cpp::pull  Catch2::Catch2  ucx::ucp  CUDA::toolkit  Threads::Threads

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# The protobuf compiler and runtime must be found before gRPC's own config file looks for them.
find_package(Protobuf REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)

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

# gRPC and protobuf, shared by default. A final target with the property SHUNT_STATIC_GRPC takes the static
# archives: libshunt.so must not bring a second protobuf into a process that has its own. Debian's
# static abseil, re2, c-ares, OpenSSL and zlib are not used: some of them are not position independent, and
# their shared forms are versioned well enough to live beside another copy.
add_library(shunt_grpc_shared INTERFACE)
target_link_libraries(shunt_grpc_shared INTERFACE gRPC::grpc++ protobuf::libprotobuf)
add_library(shunt_protobuf_shared INTERFACE)
target_link_libraries(shunt_protobuf_shared INTERFACE protobuf::libprotobuf)

function(shunt_static_archives VAR)
  set(paths)
  foreach(name IN LISTS ARGN)
    find_library(SHUNT_ARCHIVE_${name} lib${name}.a REQUIRED)
    mark_as_advanced(SHUNT_ARCHIVE_${name})
    list(APPEND paths ${SHUNT_ARCHIVE_${name}})
  endforeach()
  set(${VAR} ${paths} PARENT_SCOPE)
endfunction()
shunt_static_archives(grpc_archives grpc++ grpc address_sorting upb gpr)
shunt_static_archives(protobuf_archives protobuf)
get_target_property(grpc_needs gRPC::grpc INTERFACE_LINK_LIBRARIES)
get_target_property(gpr_needs gRPC::gpr INTERFACE_LINK_LIBRARIES)
set(grpc_needs ${grpc_needs} ${gpr_needs})
list(FILTER grpc_needs EXCLUDE REGEX "^gRPC::")
list(REMOVE_DUPLICATES grpc_needs)
add_library(shunt_protobuf_static INTERFACE)
target_link_libraries(shunt_protobuf_static INTERFACE ${protobuf_archives} ZLIB::ZLIB Threads::Threads)
add_library(shunt_grpc_static INTERFACE)
target_link_libraries(shunt_grpc_static INTERFACE ${grpc_archives} shunt_protobuf_static ${grpc_needs})

foreach(kind IN ITEMS grpc protobuf)
  add_library(shunt_${kind} INTERFACE)
  add_library(shunt::${kind} ALIAS shunt_${kind})
  target_link_libraries(shunt_${kind} INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:SHUNT_STATIC_GRPC>>,shunt_${kind}_static,shunt_${kind}_shared>)
endforeach()
