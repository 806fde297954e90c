# Run by CPack on the package's tree, before it is packed: what does not lie under the prefix as cmake --install has it.
set(tree ${CPACK_TEMPORARY_DIRECTORY})
set(source ${CPACK_SHUNT_SOURCE_DIR})

# The configuration is the example, but for who may connect: the group, as with the socket unit.
file(READ ${source}/deploy/systemd/shuntd.toml.example config)
string(REPLACE "\nsocket_mode = \"0600\"\n" "\nsocket_mode = \"0660\"\n" packaged "${config}")
if(packaged STREQUAL config)
  message(FATAL_ERROR "deploy/systemd/shuntd.toml.example: expected a line socket_mode = \"0600\"")
endif()
file(WRITE ${tree}/etc/shunt/shuntd.toml "${packaged}")

foreach(unit shuntd.service shuntd.socket shuntd@.service shuntd@.socket)
  file(COPY ${source}/deploy/systemd/${unit} DESTINATION ${tree}/lib/systemd/system)
endforeach()
foreach(kind sysusers tmpfiles)
  file(COPY ${source}/deploy/systemd/shunt.${kind} DESTINATION ${tree}/usr/lib/${kind}.d)
  file(RENAME ${tree}/usr/lib/${kind}.d/shunt.${kind} ${tree}/usr/lib/${kind}.d/shunt.conf)
endforeach()

file(COPY ${source}/client/python/shunt DESTINATION ${tree}/usr/lib/python3/dist-packages
  FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)

set(doc ${tree}/usr/share/doc/shunt)
foreach(page config install kv operate transfers migration)
  file(COPY ${source}/docs/${page}.md DESTINATION ${doc})
endforeach()
file(COPY ${source}/LICENSE DESTINATION ${doc})
file(RENAME ${doc}/LICENSE ${doc}/copyright)
