# `cmake --install`, in two components:
#   runtime      the programs and the plug-in for GPUs. What is not built is left out, and said.
#   development  static libraries, headers under include/monograph/, and the CMake package (find_package(monograph)).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# mg_install_programs(TARGET...): into bin/. OPTIONAL, because a build of a few targets lacks the others.
function(mg_install_programs)
  install(TARGETS ${ARGN} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime OPTIONAL)
  foreach(program IN LISTS ARGN)
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${program}>\")
  message(STATUS \"Not built, so not installed: ${program}\")
endif()" COMPONENT runtime)
  endforeach()
endfunction()

mg_install_programs(monograph monograph-executor)
if(MG_HAVE_CUDA)
  install(TARGETS monograph_cuda LIBRARY DESTINATION ${MG_CUDA_PLUGIN_DIR} COMPONENT runtime OPTIONAL)
endif()

install(TARGETS monograph_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime OPTIONAL
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

set(mg_package ${CMAKE_INSTALL_LIBDIR}/cmake/monograph)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
get_property(mg_libraries GLOBAL PROPERTY MG_LIBRARIES)
set_target_properties(mg_ucx PROPERTIES EXPORT_NAME ucx)
set_target_properties(mg_isal PROPERTIES EXPORT_NAME isal)
set_target_properties(mg_farmhash PROPERTIES EXPORT_NAME farmhash)
# In-tree include lines ("base/status.h") resolve below include/monograph.
install(TARGETS ${mg_libraries} mg_farmhash mg_isal mg_ucx EXPORT monograph ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/monograph)
install(TARGETS mg_monograph EXPORT monograph FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(EXPORT monograph NAMESPACE monograph:: FILE monographTargets.cmake DESTINATION ${mg_package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/monographConfig.cmake.in
  ${PROJECT_BINARY_DIR}/monographConfig.cmake INSTALL_DESTINATION ${mg_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/monographConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/monographConfig.cmake ${PROJECT_BINARY_DIR}/monographConfigVersion.cmake
  DESTINATION ${mg_package})
