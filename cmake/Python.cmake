# SPDX-License-Identifier: BSD-3-Clause
# Asks Python where torch and the headers are (cmake/locate.py). Not find_package(Torch): that wants
# a CUDA toolkit even for a CPU extension, guesses GPU architectures, and links a second CUDA
# runtime.
if(NOT ALTORCH_EXTENSION AND NOT ALTORCH_SHIMS)
  return()
endif()
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
set(without_torch "")
if(NOT ALTORCH_EXTENSION)
  set(without_torch --without-torch)
endif()
execute_process(COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/locate.py" ${without_torch}
                OUTPUT_VARIABLE located ERROR_VARIABLE complaint RESULT_VARIABLE failed)
if(failed)
  string(STRIP "${complaint}" complaint)
  message(FATAL_ERROR "${complaint}")
endif()
if(ALTORCH_EXTENSION)
  string(JSON TORCH_DIR GET "${located}" torch folder)
  string(JSON TORCH_VERSION GET "${located}" torch version)
  string(JSON TORCH_MINOR GET "${located}" torch minor)
  string(JSON TORCH_CXX11_ABI GET "${located}" torch cxx11_abi)
  string(JSON PYTHON_INCLUDE GET "${located}" python_include)
  string(JSON PYTHON_EXTENSION_SUFFIX GET "${located}" extension_suffix)
  message(STATUS "torch ${TORCH_VERSION} in ${TORCH_DIR}")
endif()
foreach(header MPICH MPI_ABI OPENMPI)
  string(TOLOWER ${header} key)
  string(JSON folder GET "${located}" ${key}_include)
  # A folder that the user names wins. Otherwise what was found now: an isolated build's folder is
  # gone the next time.
  if(ALTORCH_${header}_INCLUDE)
    set(folder "${ALTORCH_${header}_INCLUDE}")
  endif()
  set(ALTORCH_${header}_INCLUDE "${folder}")
endforeach()
