# cpack -G DEB: one Debian package of all that a node needs: daemon, tools, libshunt with its headers, the Python
# package, units, configuration.
#
# What lies outside the prefix (/etc, units) is put in by debian/tree.cmake, so that cmake --install with a prefix
# of its own never touches the system.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shunt)
set(CPACK_PACKAGE_VENDOR "The Shunt authors")
set(CPACK_PACKAGE_CONTACT "The Shunt authors <shunt@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/tree.cmake)
set(CPACK_SHUNT_SOURCE_DIR ${PROJECT_SOURCE_DIR})

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "Collectives and transfers for the processes of GPU jobs: the daemon that runs
 once on each node, its tools, the library that jobs link, and its Python package.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The library's headers are C++ and C without more; numpy is for the Python package alone.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "init-system-helpers, passwd")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "systemd, python3, python3-numpy")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA)
foreach(file conffiles postinst postrm prerm triggers)
  list(APPEND CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/${file})
endforeach()

include(CPack)
