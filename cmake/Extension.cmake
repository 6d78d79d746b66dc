# SPDX-License-Identifier: BSD-3-Clause
# altorch/lib/torch<minor>/_C: the only target that sees torch's headers, and one for each torch
# minor. Linked against torch's libraries by full path, found at run time through the ones that
# `import torch` has loaded already, or beside the package altorch.
file(GLOB_RECURSE backend_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/backend/*.cpp")
file(GLOB binding_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/bindings/*.cpp")

set(ALTORCH_VERSION_FILE "${CMAKE_SOURCE_DIR}/python/altorch/_version.py")
configure_file("${CMAKE_CURRENT_LIST_DIR}/_build_info.py.in" "${ALTORCH_PACKAGE_DIR}/_build_info.py" @ONLY)
if(NOT binding_sources)
  message(STATUS "Extension: left out, csrc/bindings has no source yet")
  return()
endif()

# The part that includes torch. An object library, so that its precompiled header is the first thing
# that the build starts: a module that links the engine would wait for it.
add_library(altorch_torch OBJECT ${backend_sources} ${binding_sources})
altorch_shares_headers(altorch_torch)
target_compile_options(altorch_torch PRIVATE -Wno-attributes)  # pybind11's classes are hidden, ours hold some
target_compile_definitions(altorch_torch PRIVATE
  TORCH_EXTENSION_NAME=_C _GLIBCXX_USE_CXX11_ABI=${TORCH_CXX11_ABI} USE_C10D_GLOO)
# pybind11 comes with torch's headers, and it must be that one: two modules see each other's classes
# (our backend derives from torch's) only under one version of pybind11's internals, and that
# version changes.
target_include_directories(altorch_torch SYSTEM PRIVATE
  "${TORCH_DIR}/include" "${TORCH_DIR}/include/torch/csrc/api/include" "${PYTHON_INCLUDE}")
target_include_directories(altorch_torch PRIVATE "${CMAKE_SOURCE_DIR}/csrc")
# torch's headers take 15 s to parse: once for all of these files.
target_precompile_headers(altorch_torch PRIVATE <ATen/ATen.h> <torch/csrc/distributed/c10d/Backend.hpp>
  <torch/csrc/distributed/c10d/PrefixStore.hpp> <torch/csrc/distributed/c10d/Work.hpp>
  <torch/csrc/utils/pybind.h> <pybind11/chrono.h> <pybind11/functional.h> <pybind11/stl.h>)
# Half of the bindings' time, so compiled beside them.
set_source_files_properties("${CMAKE_SOURCE_DIR}/csrc/bindings/module.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
altorch_unity(altorch_torch 8)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # A precompiled system header is none to it, so that more comes of its bug 105651 than
  # Settings.cmake keeps quiet.
  target_compile_options(altorch_torch PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
endif()

if(NOT ALTORCH_ENGINE)
  # Remove extensions that were linked to the engine of an earlier build.
  file(GLOB former "${ALTORCH_OUTPUT_DIR}/torch*" "${ALTORCH_PACKAGE_DIR}/_C.*.so")
  list(REMOVE_ITEM former "${ALTORCH_OUTPUT_DIR}/torch${TORCH_MINOR}")
  if(former)
    file(REMOVE_RECURSE ${former})
  endif()
endif()
add_library(altorch_C MODULE $<TARGET_OBJECTS:altorch_torch>)
set_target_properties(altorch_C PROPERTIES
  PREFIX "" OUTPUT_NAME "_C" SUFFIX "${PYTHON_EXTENSION_SUFFIX}" LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY "${ALTORCH_OUTPUT_DIR}/torch${TORCH_MINOR}"
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN/..;$ORIGIN/../../../torch/lib;$ORIGIN/../../../nvidia/cu13/lib;$ORIGIN/../../../nvidia/cuda_runtime/lib")
target_link_libraries(altorch_C PRIVATE altorch_engine "${TORCH_DIR}/lib/libc10.so" "${TORCH_DIR}/lib/libtorch_cpu.so"
  "${TORCH_DIR}/lib/libtorch_python.so")
target_link_options(altorch_C PRIVATE ${ALTORCH_EXPORTS})
altorch_manylinux(altorch_C)
