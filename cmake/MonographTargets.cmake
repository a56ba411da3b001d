# mg_joined(TARGET [FOR_PLUGINS sources...]): with MG_JOIN_SOURCES the compiler reads up to eight of its sources as one, and the headers that they share once. Sources for
# plug-ins, which take objects from libraries (mg_plugin), are joined with each other alone: they need no library that a plug-in has not.
function(mg_joined target)
  cmake_parse_arguments(ARG "" "" "FOR_PLUGINS" ${ARGN})
  if(MG_JOIN_SOURCES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    if(ARG_FOR_PLUGINS)
      get_target_property(others ${target} SOURCES)
      list(REMOVE_ITEM others ${ARG_FOR_PLUGINS})
      set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
      mg_group(together ${others})
      mg_group(for_plugins ${ARG_FOR_PLUGINS})
    endif()
    # The compiler collects its garbage late: at an eighth of this it looks through all of a large source several times, which takes a tenth of its time.
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=1048576>")
    # A source that is included is none of the compiler's "main file", whose unnamed namespace a class may use.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# mg_group(NAME SOURCES...): these are joined in groups of eight, NAME_0 and so on.
function(mg_group name)
  set(count 0)
  foreach(source IN LISTS ARGN)
    math(EXPR group "${count} / 8")
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${group})
  endforeach()
endfunction()

# mg_apart(SOURCES...): these of a joined library stay apart: plug-ins take them by file, or programs of tests have others in their place.
function(mg_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# mg_library(NAME [JOINED] SOURCES ... [PLUGIN_SOURCES ...] [HEADERS ...] [LINK ...] [PRIVATE ...]): one static library for a folder, alias monograph::NAME. JOINED and
# PLUGIN_SOURCES: see mg_joined.
# Its include root is the project's root: "base/status.h"; installed, that is include/monograph, beside <monograph/monograph.h>. HEADERS are its public ones:
# what <monograph/monograph.h> includes, directly or not. These are installed, and no others.
function(mg_library name)
  cmake_parse_arguments(ARG "JOINED" "" "SOURCES;PLUGIN_SOURCES;HEADERS;LINK;PRIVATE" ${ARGN})
  add_library(mg_${name} STATIC ${ARG_SOURCES} ${ARG_PLUGIN_SOURCES})
  if(ARG_JOINED)
    mg_joined(mg_${name} FOR_PLUGINS ${ARG_PLUGIN_SOURCES})
  endif()
  add_library(monograph::${name} ALIAS mg_${name})
  target_sources(mg_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(mg_${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE})
  target_compile_features(mg_${name} PUBLIC cxx_std_20)  # our headers', so also of projects that link the package
  set_target_properties(mg_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY MG_LIBRARIES mg_${name})
endfunction()

# mg_program(NAME SOURCES ... LINK ...): a program in bin/.
function(mg_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  mg_joined(${name})
endfunction()

# Kinds of tests, the labels of ctest:
#   unit          in one process and short: all of them together take less than two minutes (scripts/test -L unit)
#   conformance   one suite for every implementation of an interface: ops, transports
#   multiprocess  starts daemons, programs or other peers
#   examples      runs the examples
#   install       installs, and builds projects against what was installed
#   gpu           has tests that need a GPU, and skips them with a reason where there is none; scripts/gpu_check runs these
#   emulated_gpu  the plug-in for GPUs without one; where CUDA is built
#   tensorflow    the Python package beside TensorFlow; skips where the interpreter has none (tests/python/run.py)
set(MG_TEST_LABELS unit conformance multiprocess examples install gpu emulated_gpu tensorflow)

# mg_test(NAME LABEL SOURCES ... LINK ... [TIMEOUT seconds]): a GoogleTest program, each ctest entry one program.
function(mg_test name label)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT label IN_LIST MG_TEST_LABELS)
    list(JOIN MG_TEST_LABELS ", " known)
    message(FATAL_ERROR "mg_test(${name} ${label} ...): '${label}' is no label of tests; there are ${known}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  mg_joined(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  mg_compile_fast(${name})
  mg_share_test_headers(${name})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(MG_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  # COST: what may take long begins first, also in a build that has no times of an earlier run.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT} LABELS ${label})
  set_property(GLOBAL APPEND_STRING PROPERTY MG_TEST_LIST "${name} ${ARG_TIMEOUT} ${label}\n")
  if(MG_SANITIZE STREQUAL "thread")
    # UCX's memory hooks call into TSan's run time after it has left a thread.
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT UCX_MEM_MMAP_HOOK_MODE=none)
  endif()
endfunction()

# mg_test_objects(NAME SOURCES ... [LINK ...]): objects mg_NAME that several tests link. A library would drop the tests of a suite, which nothing names.
function(mg_test_objects name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(mg_${name} OBJECT ${ARG_SOURCES})
  mg_joined(mg_${name})
  mg_compile_fast(mg_${name})
  target_include_directories(mg_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(mg_${name} PRIVATE ${ARG_LINK})
endfunction()

# mg_compile_fast(TARGET): the code of tests is compiled at -Og, in little more than half the time of -O2, and less than that of -O0. What is tested keeps its own options.
function(mg_compile_fast target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Og>)
  # GCC's flow analysis looks through less there, and takes what a constructor sets (std::stop_source) for uninitialized.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endfunction()

# mg_share_test_headers(TARGET): where sources are joined, what GoogleTest and the standard library declare is read once for all tests (the target test_headers), which saves
# a quarter of the time of a small or middling one. All are compiled alike, but for definitions and warnings; one that is not has DISABLE_PRECOMPILE_HEADERS.
function(mg_share_test_headers target)
  if(NOT MG_JOIN_SOURCES OR NOT MG_SANITIZE STREQUAL "" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  if(NOT TARGET test_headers)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/test_headers.cc CONTENT "int main() {}\n")
    add_executable(test_headers EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/generated/test_headers.cc)  # as tests are programs
    target_link_libraries(test_headers PRIVATE GTest::gtest)
    mg_compile_fast(test_headers)
    target_precompile_headers(test_headers PRIVATE <gtest/gtest.h> <algorithm> <atomic> <chrono> <filesystem> <fstream> <functional> <future> <map> <memory> <mutex>
      <optional> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM test_headers)
endfunction()

# The target `generated`: all generated headers, for what reads sources without building them (scripts/lint).
add_custom_target(generated)

# mg_generated(NAME FILE...): adds generated files of this folder to it, as a target NAME that waits for no library.
function(mg_generated name)
  add_custom_target(${name} DEPENDS ${ARGN})
  add_dependencies(generated ${name})
endfunction()

# mg_protobuf(TARGET file.proto...): generates <folder>/<file>.pb.h and .pb.cc in the build tree and compiles them into TARGET, warnings off.
function(mg_protobuf target)
  foreach(proto IN LISTS ARGN)
    file(RELATIVE_PATH stem ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${proto})
    string(REGEX REPLACE "\\.proto$" "" stem ${stem})
    set(base ${PROJECT_BINARY_DIR}/generated/${stem}.pb)
    add_custom_command(OUTPUT ${base}.h ${base}.cc
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/generated
      COMMAND protobuf::protoc --proto_path=${PROJECT_SOURCE_DIR} --cpp_out=${PROJECT_BINARY_DIR}/generated
              ${CMAKE_CURRENT_SOURCE_DIR}/${proto}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${proto} VERBATIM)
    target_sources(${target} PRIVATE ${base}.cc ${base}.h)
    set_source_files_properties(${base}.cc PROPERTIES COMPILE_OPTIONS -w)
    list(APPEND generated ${base}.cc ${base}.h)
  endforeach()
  mg_generated(${target}_protobuf ${generated})
  target_include_directories(${target} SYSTEM PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>)
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf)
endfunction()

# mg_uses_protobuf_maps(TARGET): for what includes graph/graph.pb.h. Protobuf's headers give map fields another layout where they see ThreadSanitizer, and
# the system's library is not built that way.
function(mg_uses_protobuf_maps target)
  if(MG_SANITIZE STREQUAL "thread")
    target_compile_options(${target} PRIVATE -U__SANITIZE_THREAD__)
  endif()
endfunction()
