# The engine: everything below backend/. No torch header, no MPI header; a file compiles in a second or two.
set(engine_folders common device reduction collectives transports bootstrap observe engine)
list(TRANSFORM engine_folders PREPEND "${CMAKE_SOURCE_DIR}/csrc/" OUTPUT_VARIABLE engine_globs)
list(TRANSFORM engine_globs APPEND "/*.cpp")
file(GLOB_RECURSE engine_sources CONFIGURE_DEPENDS ${engine_globs})
# These two are libraries of their own (Shims.cmake).
list(FILTER engine_sources EXCLUDE REGEX "/csrc/(transports/mpi/shim|bootstrap/flux|bootstrap/pmix_server)/")

include(Kernels)
add_library(altorch_engine STATIC ${engine_sources})
target_include_directories(altorch_engine PUBLIC "${CMAKE_SOURCE_DIR}/csrc" PRIVATE "${kernel_include}")
target_link_libraries(altorch_engine PUBLIC Threads::Threads ${CMAKE_DL_LIBS} rt)
