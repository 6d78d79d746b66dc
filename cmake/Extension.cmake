# altorch/_C: the only target that sees torch's headers. Linked against torch's libraries by full path, found at run
# time through the ones that `import torch` has loaded already, or through $ORIGIN/../torch/lib.
file(GLOB_RECURSE backend_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/backend/*.cpp")
file(GLOB binding_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/bindings/*.cpp")

set(ALTORCH_VERSION_FILE "${CMAKE_SOURCE_DIR}/python/altorch/_version.py")
configure_file("${CMAKE_CURRENT_LIST_DIR}/_build_info.py.in" "${ALTORCH_PACKAGE_DIR}/_build_info.py" @ONLY)
if(NOT binding_sources)
  message(STATUS "Extension: left out, csrc/bindings has no source yet")
  return()
endif()

add_library(altorch_C MODULE ${backend_sources} ${binding_sources})
set_target_properties(altorch_C PROPERTIES
  PREFIX "" OUTPUT_NAME "_C" SUFFIX "${PYTHON_EXTENSION_SUFFIX}"
  LIBRARY_OUTPUT_DIRECTORY "${ALTORCH_PACKAGE_DIR}"
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN/../torch/lib;$ORIGIN/../nvidia/cu13/lib;$ORIGIN/../nvidia/cuda_runtime/lib")
target_compile_definitions(altorch_C PRIVATE
  TORCH_EXTENSION_NAME=_C _GLIBCXX_USE_CXX11_ABI=${TORCH_CXX11_ABI} USE_C10D_GLOO)
# pybind11 comes with torch's headers, and it must be that one: two modules see each other's classes (our backend
# derives from torch's) only under one version of pybind11's internals, and that version changes.
target_include_directories(altorch_C SYSTEM PRIVATE
  "${TORCH_DIR}/include" "${TORCH_DIR}/include/torch/csrc/api/include" "${PYTHON_INCLUDE}")
target_link_libraries(altorch_C PRIVATE altorch_engine "${TORCH_DIR}/lib/libc10.so" "${TORCH_DIR}/lib/libtorch_cpu.so"
  "${TORCH_DIR}/lib/libtorch_python.so")
# Parsed once instead of by each of some twenty files: that was most of the build.
target_precompile_headers(altorch_C PRIVATE <ATen/ATen.h> <torch/csrc/distributed/c10d/Backend.hpp>
  <torch/csrc/distributed/c10d/PrefixStore.hpp> <torch/csrc/distributed/c10d/Work.hpp>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # A precompiled system header is none to it, so that more comes of its bug 105651 than Settings.cmake keeps quiet.
  target_compile_options(altorch_C PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
endif()
target_link_options(altorch_C PRIVATE -Wl,--no-undefined-version -Wl,--exclude-libs,ALL)


