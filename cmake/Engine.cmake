# SPDX-License-Identifier: BSD-3-Clause
# The engine: everything below backend/, one library for every torch. No torch header, no MPI
# header.
set(engine_folders base platform rendezvous reduction device health trace transports bootstrap collectives select runtime gpu windows explain simulate c_api)
list(TRANSFORM engine_folders PREPEND "${CMAKE_SOURCE_DIR}/csrc/" OUTPUT_VARIABLE engine_globs)
list(TRANSFORM engine_globs APPEND "/*.cpp")
file(GLOB_RECURSE engine_sources CONFIGURE_DEPENDS ${engine_globs})
# These two are libraries of their own (Shims.cmake).
list(FILTER engine_sources EXCLUDE REGEX "/csrc/(transports/mpi/shim|bootstrap/flux|bootstrap/pmix_server)/")

include(Kernels)
add_library(altorch_engine SHARED ${engine_sources})
# Calls inside the library bind to it. Variables defined in headers must exist once in the process,
# so both libraries export them.
altorch_shares_headers(altorch_engine)
target_compile_options(altorch_engine PRIVATE -fno-semantic-interposition)
target_link_options(altorch_engine PRIVATE -Wl,-Bsymbolic-functions ${ALTORCH_EXPORTS})
if(ALTORCH_EXTENSION OR ALTORCH_SHIMS)
  set_target_properties(altorch_engine PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${ALTORCH_OUTPUT_DIR}")
endif()
target_include_directories(altorch_engine PUBLIC "${CMAKE_SOURCE_DIR}/csrc" PRIVATE "${kernel_include}")
target_link_libraries(altorch_engine PUBLIC Threads::Threads ${CMAKE_DL_LIBS} rt)
altorch_manylinux(altorch_engine)
# The standard headers that most files include: they are most of what the compiler reads.
target_precompile_headers(altorch_engine PRIVATE ${ALTORCH_STANDARD_HEADERS})
# Compiled one by one: table rows, which define the same local names; kernels, which select an
# instruction set per file; and message_window.cpp, of which GCC warns when another file includes
# it.
file(GLOB alone CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/collectives/*/*.cpp" "${CMAKE_SOURCE_DIR}/csrc/gpu/*/*row.cpp"
  "${CMAKE_SOURCE_DIR}/csrc/reduction/kernels_*.cpp" "${CMAKE_SOURCE_DIR}/csrc/transports/message_window.cpp")
set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
altorch_unity(altorch_engine 8)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105651: GCC does not treat a precompiled header as a system header.
  target_compile_options(altorch_engine PRIVATE -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
endif()
