# cmake -DBUILD=<Monograph's build> -DSOURCE=<its sources> -DWORK=<scratch> -DPYTHON=<interpreter> -P pip.cmake
# `pip install .` as pyproject.toml says, but that the compiled part comes from BUILD: a project in place of ours installs what is there.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

execute_process(COMMAND ${PYTHON} -c "import pip, numpy, scikit_build_core" RESULT_VARIABLE missing ERROR_VARIABLE error)
if(NOT missing EQUAL 0)
  string(REGEX MATCH "No module named '([a-z_]*)'" message "${error}")
  message("skipped: ${PYTHON} has no ${CMAKE_MATCH_1}")
  return()
endif()
file(REMOVE_RECURSE ${WORK})
file(CONFIGURE OUTPUT ${WORK}/project/CMakeLists.txt @ONLY CONTENT [[
cmake_minimum_required(VERSION 3.25)
project(built NONE)
add_custom_target(python_package)
install(CODE "execute_process(COMMAND @CMAKE_COMMAND@ --install @BUILD@ --component python --prefix \${CMAKE_INSTALL_PREFIX} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
]])
run(${PYTHON} -m pip install --no-index --no-deps --no-build-isolation --disable-pip-version-check --target ${WORK}/site
  --config-settings=build-dir=${WORK}/build --config-settings=cmake.source-dir=${WORK}/project ${SOURCE})
set(ENV{PYTHONPATH} ${WORK}/site)
run(${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/installed.py ${WORK}/site)
run(${WORK}/site/bin/monograph ops MatMul)
run(${WORK}/site/bin/monograph-executor --help)
file(REMOVE_RECURSE ${WORK})
