# SPDX-License-Identifier: BSD-3-Clause
# Small libraries that are loaded at run time: one MPI shim per MPI ABI, and the helpers of the
# bootstraps. Each folder says what it needs and reports what it leaves out.
file(GLOB_RECURSE shim_lists CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/transports/mpi/shim/CMakeLists.txt"
     "${CMAKE_SOURCE_DIR}/csrc/bootstrap/*/CMakeLists.txt")
foreach(list ${shim_lists})
  get_filename_component(folder "${list}" DIRECTORY)
  add_subdirectory("${folder}")
endforeach()
