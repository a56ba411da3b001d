# cmake -DBUILD=<Monograph's build> -DSOURCE=<its source> -DWORK=<scratch> ... -P partial.cmake
# Installs from a build tree that holds no more than three programs and the libraries, as scripts/demo leaves it. The tree is configured anew;
# its files are copies of BUILD's.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${WORK}/build -DMG_BUILD_TESTS=OFF -DMG_CUDA=OFF -DCMAKE_CXX_COMPILER=${COMPILER}
  -DMG_UCX_ROOT=${UCX_ROOT} -DMG_TBB_ROOT=${TBB_ROOT})
file(GLOB libraries RELATIVE ${BUILD} ${BUILD}/base/*.a ${BUILD}/graph/*.a ${BUILD}/transport/*.a ${BUILD}/transport/*/*.a
  ${BUILD}/executor/*.a ${BUILD}/ops/*.a ${BUILD}/client/*.a ${BUILD}/train/*.a ${BUILD}/tools/*.a)
foreach(path IN LISTS libraries ITEMS bin/monograph bin/monograph-executor bin/mnist_replica)
  get_filename_component(folder ${path} DIRECTORY)
  file(COPY ${BUILD}/${path} DESTINATION ${WORK}/build/${folder})
endforeach()

# expect_files(PREFIX PATTERN FILE...): no more and no less.
function(expect_files prefix pattern)
  file(GLOB_RECURSE files RELATIVE ${prefix} ${prefix}/${pattern})
  set(expected ${ARGN})
  list(SORT files)
  list(SORT expected)
  if(NOT "${files}" STREQUAL "${expected}")
    message(FATAL_ERROR "in ${prefix} are '${files}', not '${expected}'")
  endif()
endfunction()

set(programs bin/mnist_replica bin/monograph bin/monograph-executor)
run(${CMAKE_COMMAND} --install ${WORK}/build --prefix ${WORK}/runtime --component runtime --strip)
if(NOT output MATCHES "Not built, so not installed: first_graph\n")
  message(FATAL_ERROR "nothing says what is left out:\n${output}")
endif()
expect_files(${WORK}/runtime * ${programs})
run(${WORK}/runtime/bin/monograph --help)
file(SIZE ${WORK}/runtime/bin/monograph stripped)
file(SIZE ${BUILD}/bin/monograph whole)
if(NOT stripped LESS whole)
  message(FATAL_ERROR "${stripped} bytes stripped are not less than ${whole}")
endif()

run(${CMAKE_COMMAND} --install ${WORK}/build --prefix ${WORK}/development --component development)
expect_files(${WORK}/development bin/*)
run(${CMAKE_COMMAND} --install ${WORK}/build --prefix ${WORK}/whole)
expect_files(${WORK}/whole bin/* ${programs})
foreach(prefix development whole)
  expect_files(${WORK}/${prefix} monographConfig.cmake ${LIBDIR}/cmake/monograph/monographConfig.cmake)
  expect_files(${WORK}/${prefix} libmg_client.a ${LIBDIR}/libmg_client.a)
endforeach()
file(REMOVE_RECURSE ${WORK})
