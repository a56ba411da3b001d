# cmake -DPREFIX=<where Monograph is installed> -DSOURCE=<project> -DPROGRAM=<its program> -DWORK=<scratch> ... -P build_and_run.cmake
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

file(REMOVE_RECURSE ${WORK})
set(link_flags "${FLAGS}")
if(MOLD)
  string(APPEND link_flags " -fuse-ld=mold")
endif()
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_BUILD_TYPE=Debug
  -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" "-DCMAKE_CXX_FLAGS=${FLAGS} -Wall -Wextra -Werror"
  "-DCMAKE_EXE_LINKER_FLAGS=${link_flags}")
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/${PROGRAM})
message("${output}")
file(REMOVE_RECURSE ${WORK})
