# SPDX-License-Identifier: BSD-3-Clause
# The source of the GPU kernels, as text inside the engine: NVRTC, which comes with torch, compiles
# what is needed for the GPU that is there. So building needs no nvcc, and one build serves every
# GPU and every CUDA.
set(kernel_folder "${CMAKE_SOURCE_DIR}/csrc/device/kernels")
set(kernel_include "${CMAKE_BINARY_DIR}/generated")
set(kernel_text "")
macro(embed_source name folder ending)
  string(REGEX REPLACE "([a-z0-9])([A-Z])" "\\1_\\2" file "${name}")
  string(TOLOWER "${folder}/${file}.${ending}" file)
  file(READ "${CMAKE_SOURCE_DIR}/csrc/${file}" source)
  string(APPEND kernel_text "constexpr char k${name}Source[] = R\"cuda(${source})cuda\";\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/${file}")
endmacro()
foreach(name Jobs TokenJobs Numbers Exact Reduce Ll Pairs Poison Rounds Parts Copies OneShot TwoShot Exchange Ll128 Ll128Reduce Ll128AllPeers Ll128TwoShot Ll128Exchange Quantized QuantizedChunks Ll128Quantized LlNorm TokenSlots TokenRows Window)
  embed_source(${name} device/kernels cuh)
endforeach()
foreach(name ExactSum Float8)  # CPU kernels include them, too
  embed_source(${name} base inc)
endforeach()
file(GENERATE OUTPUT "${kernel_include}/device/kernels/source.inc" CONTENT "${kernel_text}")

# Where an NVIDIA driver is loaded, nvcc compiles the usual types and operators into the engine
# ahead of time. This takes two minutes of a core.
set(has_gpu OFF)
if(EXISTS "/proc/driver/nvidia/version")
  set(has_gpu ON)
endif()
option(ALTORCH_AHEAD "Compile GPU kernels ahead, with nvcc (default: where an NVIDIA driver is loaded)" ${has_gpu})
find_program(ALTORCH_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(ALTORCH_FATBIN "" CACHE FILEPATH "GPU kernels that altorch_fatbin has made elsewhere, of the same sources")
set(ahead_unsupported_reason "")
if(NOT ALTORCH_AHEAD)
  set(ahead_unsupported_reason "ALTORCH_AHEAD=OFF")
elseif(ALTORCH_FATBIN AND NOT ALTORCH_SANITIZE)
  set(kernels_ahead "${ALTORCH_FATBIN}")
elseif(ALTORCH_SANITIZE OR CMAKE_CROSSCOMPILING)
  set(ahead_unsupported_reason "a build with a sanitizer or for another machine")
elseif(NOT ALTORCH_NVCC)
  set(ahead_unsupported_reason "there is no nvcc")
else()
  execute_process(COMMAND "${ALTORCH_NVCC}" --list-gpu-code OUTPUT_VARIABLE known OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET)
  string(REPLACE "\n" ";" known "${known}")
  set(targets "")
  foreach(architecture 80 90 100)
    if("sm_${architecture}" IN_LIST known)
      list(APPEND targets -gencode "arch=compute_${architecture},code=sm_${architecture}")
    endif()
  endforeach()
  # An nvcc that is too old, or does not like the compiler, is as good as none.
  set(nvcc_options -fatbin -std=c++20 --fmad=false --threads 0 -Xfatbin -compress-all)
  file(WRITE "${CMAKE_BINARY_DIR}/probe.cu" "__global__ void probe() {}\n")
  execute_process(COMMAND "${ALTORCH_NVCC}" ${nvcc_options} ${targets} -o "${CMAKE_BINARY_DIR}/probe.fatbin"
                          "${CMAKE_BINARY_DIR}/probe.cu" RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed OR NOT targets)
    set(ahead_unsupported_reason "${ALTORCH_NVCC} cannot compile them: ${said}")
  endif()
endif()
if(ahead_unsupported_reason)
  message(STATUS "GPU kernels: compiled when they are first needed (${ahead_unsupported_reason})")
  add_custom_target(altorch_fatbin)  # makes nothing
elseif(NOT ALTORCH_FATBIN)
  message(STATUS "GPU kernels: compiled ahead by ${ALTORCH_NVCC}")
  add_executable(altorch_kernels_ahead "${CMAKE_CURRENT_LIST_DIR}/kernels_ahead.cpp" "${kernel_folder}/names.cpp")
  target_include_directories(altorch_kernels_ahead PRIVATE "${CMAKE_SOURCE_DIR}/csrc" "${kernel_include}")
  set(kernels_ahead "${CMAKE_BINARY_DIR}/kernels_ahead.fatbin")
  # Without fused multiply-add the results are those of the host, bit by bit.
  add_custom_command(OUTPUT "${kernels_ahead}"
    COMMAND altorch_kernels_ahead > "${CMAKE_BINARY_DIR}/kernels_ahead.cu"
    COMMAND "${ALTORCH_NVCC}" ${nvcc_options} ${targets} -o "${kernels_ahead}" "${CMAKE_BINARY_DIR}/kernels_ahead.cu"
    DEPENDS altorch_kernels_ahead VERBATIM)
  add_custom_target(altorch_fatbin DEPENDS "${kernels_ahead}")
endif()
if(NOT ahead_unsupported_reason)
  set_source_files_properties("${CMAKE_SOURCE_DIR}/csrc/device/compiled_ahead.cpp" PROPERTIES
    OBJECT_DEPENDS "${kernels_ahead}" COMPILE_DEFINITIONS "ALTORCH_AHEAD=\"${kernels_ahead}\"")
endif()
