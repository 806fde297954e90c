# cmake --install: the programs, libshunt with its headers, the example configuration.

include(GNUInstallDirs)

install(TARGETS shuntd shuntctl shunt-perf RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS shunt_client LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES client/include/shunt.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES client/include/shunt/client.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shunt)
install(FILES deploy/systemd/shuntd.toml.example DESTINATION ${CMAKE_INSTALL_DOCDIR})
