# What `cmake --install` copies, and how others find it: find_package(rapt) or pkg-config rapt.

include(CMakePackageConfigHelpers)

install(TARGETS rapt EXPORT rapt-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT devel)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT devel)
set(RAPT_LEFT_OUT)
if(NOT RAPT_MODELS)
  set(RAPT_LEFT_OUT PATTERN models EXCLUDE)
endif()
if(NOT TARGET rapt_mpi)
  list(APPEND RAPT_LEFT_OUT PATTERN mpi.h EXCLUDE)
endif()
install(DIRECTORY include/rapt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT devel
        ${RAPT_LEFT_OUT})
if(TARGET rapt_command)
  file(RELATIVE_PATH lib_from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(rapt_command PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  install(TARGETS rapt_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
endif()
if(TARGET rapt_mpi_command)
  set_target_properties(rapt_mpi_command PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  install(TARGETS rapt_mpi_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
endif()

set(RAPT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/rapt)
install(EXPORT rapt-targets NAMESPACE rapt:: DESTINATION ${RAPT_CMAKE_DIR} COMPONENT devel)
if(TARGET rapt_mpi)  # find_package(rapt COMPONENTS mpi)
  set_target_properties(rapt_mpi PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS rapt_mpi EXPORT rapt-mpi-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT devel)
  install(EXPORT rapt-mpi-targets NAMESPACE rapt:: DESTINATION ${RAPT_CMAKE_DIR} COMPONENT devel)
endif()
configure_package_config_file(cmake/rapt-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/rapt-config.cmake INSTALL_DESTINATION ${RAPT_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/rapt-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rapt-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/rapt-config-version.cmake
  DESTINATION ${RAPT_CMAKE_DIR} COMPONENT devel)

# A static librapt needs its dependencies named at every link, a shared one carries them.
if(BUILD_SHARED_LIBS)
  set(RAPT_PC_LIBS "")
else()
  set(RAPT_PC_LIBS " -lhwy -pthread")
  if(RAPT_MODELS)
    string(APPEND RAPT_PC_LIBS " -lutf8proc -lpcre2-8")
  endif()
endif()
file(RELATIVE_PATH RAPT_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/rapt.pc.in ${CMAKE_CURRENT_BINARY_DIR}/rapt.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rapt.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT devel)
