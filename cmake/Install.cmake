# cmake --install: the programs, libshunt with its headers and what finds them (pkg-config, CMake), the example
# configuration. The tree can be moved afterwards: nothing in it holds the prefix.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# A program under a prefix that the system's loader does not search finds the library beside it.
file(RELATIVE_PATH library_from_program
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(shuntd shuntctl shunt-perf PROPERTIES INSTALL_RPATH "$ORIGIN/${library_from_program}")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Shunt)
set_target_properties(shunt_client PROPERTIES EXPORT_NAME shunt)
install(TARGETS shuntd shunt-gpu-worker shuntctl shunt-perf shunt-sim RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS shunt_client EXPORT shunt
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES client/include/shunt.h client/include/shunt_kv.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES client/include/shunt/client.h client/include/shunt/files.h client/include/shunt/kv.h client/include/shunt/transfers.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shunt)
install(FILES deploy/systemd/shuntd.toml.example DESTINATION ${CMAKE_INSTALL_DOCDIR})

# find_package(Shunt), then link shunt::shunt.
install(EXPORT shunt NAMESPACE shunt:: FILE ShuntConfig.cmake DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ShuntConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ShuntConfigVersion.cmake DESTINATION ${package_dir})

file(RELATIVE_PATH prefix_from_pc
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
configure_file(cmake/shunt.pc.in ${PROJECT_BINARY_DIR}/shunt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/shunt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
