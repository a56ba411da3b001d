# CUDA: whether it is there (MG_HAVE_CUDA, and with it MG_HAVE_NCCL), how its code is compiled, and the plug-in libmonograph_cuda.so, which alone links it.

# Relative to the program's folder and to the prefix: the same in the build tree and where it is installed.
include(GNUInstallDirs)
set(MG_CUDA_PLUGIN_DIR ${CMAKE_INSTALL_LIBDIR}/monograph)

function(mg_find_cuda)
  set(MG_HAVE_CUDA OFF PARENT_SCOPE)
  set(MG_HAVE_NCCL OFF PARENT_SCOPE)
  if(NOT MG_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "MG_CUDA is '${MG_CUDA}'; it must be AUTO, ON or OFF")
  endif()
  if(MG_CUDA STREQUAL "OFF")
    return()
  endif()
  set(missing "")
  if(NOT MG_SANITIZE STREQUAL "")
    set(missing "MG_SANITIZE is '${MG_SANITIZE}', which CUDA code is not built with")
  else()
    include(CheckLanguage)
    check_language(CUDA)
    find_package(CUDAToolkit 13 QUIET)
    find_package(cuDNN 9.8 QUIET)
    if(NOT CMAKE_CUDA_COMPILER)
      set(missing "nvcc was not found (PATH or -DCMAKE_CUDA_COMPILER=)")
    elseif(NOT CUDAToolkit_FOUND)
      set(missing "no CUDA toolkit 13 was found (-DCUDAToolkit_ROOT=)")
    elseif(NOT cuDNN_FOUND)
      set(missing "cuDNN 9.8 or newer was not found (-DcuDNN_ROOT=)")
    endif()
  endif()
  if(missing AND MG_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MG_CUDA is ON, but ${missing}")
  elseif(missing)
    message(STATUS "CUDA: off, ${missing}")
    return()
  endif()
  find_package(NCCL 2.28 QUIET)
  set(nccl "no NCCL 2.28 (-DNCCL_ROOT=)")
  if(NCCL_FOUND)
    set(nccl "NCCL ${NCCL_VERSION}")
  endif()
  message(STATUS "CUDA: ${CUDAToolkit_VERSION}, cuDNN ${cuDNN_VERSION}, ${nccl}")
  set(MG_HAVE_CUDA ON PARENT_SCOPE)
  set(MG_HAVE_NCCL ${NCCL_FOUND} PARENT_SCOPE)
endfunction()

mg_find_cuda()
if(MG_HAVE_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Machine code for both, and PTX of the second for what comes later.
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPU architectures, as 80, 90 or native")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit 13 REQUIRED)
  find_package(cuDNN 9.8 REQUIRED)
  if(MG_HAVE_NCCL)
    find_package(NCCL 2.28 REQUIRED)
  endif()
  # CMake 3.25 does not know that this nvcc has C++20, and would drop the option in silence.
  foreach(kind STANDARD EXTENSION)
    if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
      set(CMAKE_CUDA20_${kind}_COMPILE_OPTION "-std=c++20")
    endif()
  endforeach()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(MG_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${MG_CCACHE})
  endif()
  # Of the code for the host, which in these files only launches: -O2 would take it twice the time, and a quarter of all of nvcc's. That for GPUs is always optimized as
  # far as nvcc can.
  set(CMAKE_CUDA_FLAGS_RELEASE "-Xcompiler=-Og -DNDEBUG")
endif()

# mg_cuda_objects(NAME SOURCES...): .cu and .cc files that call CUDA, as a part of the plug-in.
function(mg_cuda_objects name)
  add_library(mg_${name} OBJECT ${ARGN})
  target_include_directories(mg_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(mg_${name} PRIVATE CUDA::cudart_static CUDA::cublasLt cuDNN::cudnn)
  # As for the kernels of CPUs: integers wrap, and a*b+c is rounded twice, so that both give the same bits.
  target_compile_options(mg_${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fwrapv>
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false --expt-relaxed-constexpr --extended-lambda -Xcompiler=-ffp-contract=off,-fwrapv>)
  set_property(GLOBAL APPEND PROPERTY MG_CUDA_OBJECTS mg_${name})
endfunction()

# mg_plugin(NAME SOURCES...): a library that programs open (executor/gpu/plugin_interface.h). It takes of our static libraries what it needs, by file: whatever
# would bring protobuf with it (which refuses to meet a second copy of its descriptors in one process) fails to link.
function(mg_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  # Of ops/ the kernels that need no library: a GPU's kernels for host memory are the CPU's (ops/gpu/on_host_cuda.h).
  add_dependencies(${name} mg_base mg_graph mg_executor mg_ops_def mg_ops_cpu)
  # The C++ library comes first: else what other shared libraries want of it, a template's instance, is taken from an object of ours that has one, too, with all that this
  # object needs.
  target_link_libraries(${name} PRIVATE stdc++ $<TARGET_FILE:mg_ops_cpu> $<TARGET_FILE:mg_ops_def> $<TARGET_FILE:mg_executor> $<TARGET_FILE:mg_graph> $<TARGET_FILE:mg_base>
    fmt::fmt TBB::tbb Threads::Threads ${CMAKE_DL_LIBS})
  set(map ${PROJECT_SOURCE_DIR}/ops/cuda_plugin.map)
  target_link_options(${name} PRIVATE -Wl,--no-undefined -Wl,--version-script=${map})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS ${map})
endfunction()

# mg_find_cuda_libraries(LIBRARY_TARGET): where CUDA's libraries are looked for, from the build tree and from where it is installed.
function(mg_find_cuda_libraries name)
  # NCCL is not linked but opened, and found by the same paths.
  set(nccl "")
  if(MG_HAVE_NCCL)
    get_filename_component(nccl ${NCCL_LIBRARY} DIRECTORY)
  endif()
  set_target_properties(${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${MG_CUDA_PLUGIN_DIR} BUILD_RPATH "${nccl}"
    INSTALL_RPATH "$ORIGIN;$ORIGIN/..;${CUDAToolkit_LIBRARY_DIR};/usr/local/cuda/lib64;${nccl}")
endfunction()

# mg_cuda_test(NAME SOURCES...): a test that calls CUDA's libraries itself. They are linked to a library that the program opens.
function(mg_cuda_test name)
  add_library(${name}_cases MODULE ${ARGN})
  target_include_directories(${name}_cases PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(${name}_cases SYSTEM PRIVATE $<TARGET_PROPERTY:GTest::gtest,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${name}_cases PRIVATE monograph::executor CUDA::cudart_static CUDA::cublasLt cuDNN::cudnn)
  set_target_properties(${name}_cases PROPERTIES LINKER_LANGUAGE CXX)
  mg_find_cuda_libraries(${name}_cases)
  mg_test(${name} gpu SOURCES ${PROJECT_SOURCE_DIR}/tests/cuda_tests_main.cc LINK ${CMAKE_DL_LIBS})
  # GoogleTest is the program's.
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
  target_compile_definitions(${name} PRIVATE MG_CUDA_TESTS="${MG_PROGRAM_ROOT}/../${MG_CUDA_PLUGIN_DIR}/lib${name}_cases.so")
  add_dependencies(${name} ${name}_cases)
endfunction()

# The plug-in libmonograph_cuda.so: all that mg_cuda_objects named.
function(mg_add_cuda_plugin)
  get_property(objects GLOBAL PROPERTY MG_CUDA_OBJECTS)
  list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  mg_plugin(monograph_cuda ${PROJECT_SOURCE_DIR}/ops/cuda_plugin.cc ${objects})
  target_link_libraries(monograph_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt cuDNN::cudnn)
  mg_find_cuda_libraries(monograph_cuda)
endfunction()
