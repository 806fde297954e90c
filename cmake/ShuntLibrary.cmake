# One directory is one library: the functions that every directory's CMakeLists.txt is written in.
# Sources are listed, never globbed.

include(CMakeParseArguments)

# shunt_library(NAME core SRCS a.cc HDRS a.h DEPS absl::status [PRIVATE_DEPS spdlog::spdlog])
# makes the static library shunt_core with the alias shunt::core. Without SRCS it is header-only.
function(shunt_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;HDRS;DEPS;PRIVATE_DEPS" ${ARGN})
  shunt_check_arguments(shunt_library)
  set(target shunt_${ARG_NAME})
  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS} ${ARG_HDRS})
    target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE shunt_flags ${ARG_PRIVATE_DEPS})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
    target_include_directories(${target} INTERFACE ${PROJECT_SOURCE_DIR})
  endif()
  add_library(shunt::${ARG_NAME} ALIAS ${target})
endfunction()

# shunt_binary(NAME shuntd SRCS main.cc DEPS shunt::daemon) makes bin/shuntd.
function(shunt_binary)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  shunt_check_arguments(shunt_binary)
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE shunt_flags ${ARG_DEPS})
endfunction()

# shunt_proto_library(NAME proto PROTOS shunt/v1/session.proto ... [GRPC] [LITE])
# Generates from ${PROJECT_SOURCE_DIR}/proto into the library shunt_<NAME>, so that a user writes
# #include "shunt/v1/session.pb.h". GRPC: also the stubs ("shunt/v1/session.grpc.pb.h"), a library of their
# own, shunt_<NAME>_grpc. LITE: protobuf's lite runtime, without descriptors and reflection.
function(shunt_proto_library)
  cmake_parse_arguments(ARG "GRPC;LITE" "NAME" "PROTOS" ${ARGN})
  shunt_check_arguments(shunt_proto_library)
  set(root ${PROJECT_SOURCE_DIR}/proto)
  set(out ${PROJECT_BINARY_DIR}/generated/${ARG_NAME})
  set(lite $<$<BOOL:${ARG_LITE}>:lite:>)
  file(MAKE_DIRECTORY ${out})
  set(absolute ${ARG_PROTOS})
  list(TRANSFORM absolute PREPEND ${root}/)
  set(messages)
  set(stubs)
  foreach(proto IN LISTS ARG_PROTOS)
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    # Every file depends on all of them: an import is then never stale.
    add_custom_command(
      OUTPUT ${out}/${stem}.pb.cc ${out}/${stem}.pb.h
      COMMAND protobuf::protoc -I ${root} --cpp_out=${lite}${out} ${proto}
      DEPENDS ${absolute} protobuf::protoc
      COMMENT "Generating messages of ${proto}"
      VERBATIM)
    list(APPEND messages ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
    if(ARG_GRPC)
      add_custom_command(
        OUTPUT ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h
        COMMAND protobuf::protoc -I ${root} --grpc_out=${out}
          --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin> ${proto}
        DEPENDS ${absolute} protobuf::protoc gRPC::grpc_cpp_plugin
        COMMENT "Generating stubs of ${proto}"
        VERBATIM)
      list(APPEND stubs ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h)
    endif()
  endforeach()

  # Generated code is compiled without our warnings.
  set(target shunt_${ARG_NAME})
  add_library(${target} STATIC ${messages})
  add_library(shunt::${ARG_NAME} ALIAS ${target})
  target_include_directories(${target} SYSTEM PUBLIC ${out})
  target_compile_options(${target} PRIVATE -w)
  target_link_libraries(${target} PUBLIC shunt::protobuf)
  if(ARG_GRPC)
    add_library(${target}_grpc STATIC ${stubs})
    add_library(shunt::${ARG_NAME}_grpc ALIAS ${target}_grpc)
    target_compile_options(${target}_grpc PRIVATE -w)
    target_link_libraries(${target}_grpc PUBLIC ${target} shunt::grpc)
  endif()
endfunction()

# The main function of every test, compiled once.
if(SHUNT_TESTS)
  add_library(shunt_catch_main STATIC ${PROJECT_SOURCE_DIR}/tests/support/catch_main.cc)
  target_link_libraries(shunt_catch_main PUBLIC Catch2::Catch2 PRIVATE shunt_flags)
endif()

# Builds every test with the label core: what the sanitizers run, so nothing in it links gRPC.
add_custom_target(core-tests)
add_custom_target(fuzzers)

# shunt_test(NAME reduce_test SRCS reduce_test.cc DEPS shunt::collectives LABELS unit core [TIMEOUT 60])
# A Catch2 test program in bin/tests. Exit code 77 means skipped. Label core: also run under the sanitizers.
function(shunt_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  shunt_check_arguments(shunt_test)
  if(NOT SHUNT_TESTS)
    return()
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE shunt_catch_main shunt_flags ${ARG_DEPS})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  shunt_test_properties(${ARG_NAME} "${ARG_LABELS}" "${ARG_TIMEOUT}" "${ARG_ENVIRONMENT}")
  if("core" IN_LIST ARG_LABELS)
    add_dependencies(core-tests ${ARG_NAME})
  endif()
endfunction()

# shunt_command_test(NAME python_test COMMAND python3 x.py LABELS cluster): any other program as a test.
function(shunt_command_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  shunt_check_arguments(shunt_command_test)
  if(NOT SHUNT_TESTS)
    return()
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND})
  shunt_test_properties(${ARG_NAME} "${ARG_LABELS}" "${ARG_TIMEOUT}" "${ARG_ENVIRONMENT}")
endfunction()

# shunt_fuzzer(NAME ring_fuzzer SRCS ring_fuzzer.cc DEPS ... CORPUS dir): a program around
# LLVMFuzzerTestOneInput. With clang and SHUNT_FUZZ it is a libFuzzer binary; otherwise it replays its
# corpus, so that every build has it as a regression test (labels fuzz and core).
function(shunt_fuzzer)
  cmake_parse_arguments(ARG "" "NAME;CORPUS" "SRCS;DEPS" ${ARGN})
  shunt_check_arguments(shunt_fuzzer)
  if(NOT SHUNT_TESTS)
    return()
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE shunt_flags ${ARG_DEPS})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/fuzz)
  get_filename_component(corpus ${ARG_CORPUS} ABSOLUTE)
  if(SHUNT_FUZZ)
    target_compile_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    set(replay -runs=0 ${corpus})
  else()
    target_sources(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/replay_main.cc)
    set(replay ${corpus})
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${replay})
  shunt_test_properties(${ARG_NAME} "fuzz;core" "60" "")
  # Where scripts/test finds the fuzzers and their corpora: one "binary<TAB>corpus" line each.
  set_property(GLOBAL APPEND_STRING PROPERTY SHUNT_FUZZER_LIST
    "${PROJECT_BINARY_DIR}/bin/fuzz/${ARG_NAME}\t${corpus}\n")
  add_dependencies(fuzzers ${ARG_NAME})
  add_dependencies(core-tests ${ARG_NAME})
endfunction()

function(shunt_test_properties NAME LABELS TIMEOUT ENVIRONMENT)
  if(NOT TIMEOUT)
    set(TIMEOUT 120)
  endif()
  if(SHUNT_SANITIZE)
    math(EXPR TIMEOUT "4 * ${TIMEOUT}")
  endif()
  if(SHUNT_SANITIZE STREQUAL "thread")
    list(APPEND ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp:\
ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1")
  endif()
  set_tests_properties(${NAME} PROPERTIES
    LABELS "${LABELS}" TIMEOUT ${TIMEOUT} SKIP_RETURN_CODE 77 ENVIRONMENT "${ENVIRONMENT}")
endfunction()

# A misspelt keyword is an error, not a silently ignored list.
macro(shunt_check_arguments FUNCTION)
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${FUNCTION}(${ARG_NAME}): unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_NAME)
    message(FATAL_ERROR "${FUNCTION}: NAME is missing")
  endif()
endmacro()
