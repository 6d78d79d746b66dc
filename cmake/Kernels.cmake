# The source of the GPU kernels, as text inside the engine: NVRTC, which comes with torch, compiles what is needed for
# the GPU that is there. So building needs no nvcc, and one build serves every GPU and every CUDA.
set(kernel_folder "${CMAKE_SOURCE_DIR}/csrc/device/kernels")
set(kernel_include "${CMAKE_BINARY_DIR}/generated")
set(kernel_text "")
foreach(name Numbers Reduce Small Pairs Poison Bulk)
  string(TOLOWER "${name}" file)
  file(READ "${kernel_folder}/${file}.cuh" source)
  string(APPEND kernel_text "constexpr char k${name}Source[] = R\"cuda(${source})cuda\";\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${kernel_folder}/${file}.cuh")
endforeach()
file(GENERATE OUTPUT "${kernel_include}/device/kernels/source.inc" CONTENT "${kernel_text}")
