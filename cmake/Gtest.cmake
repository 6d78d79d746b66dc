# GTest::gtest and GTest::gtest_main: the system's, or built from source. The source is that of the system's package where
# it is installed (for another architecture, say), and otherwise comes from GitHub, checked by its hash.
if(NOT CMAKE_CROSSCOMPILING)
  find_package(GTest QUIET)
endif()
if(GTest_FOUND)
  message(STATUS "C++ tests: the GoogleTest of this system")
  return()
endif()
if(EXISTS /usr/src/googletest/CMakeLists.txt AND NOT FETCHCONTENT_SOURCE_DIR_GOOGLETEST)
  set(FETCHCONTENT_SOURCE_DIR_GOOGLETEST /usr/src/googletest)
endif()
message(STATUS "C++ tests: GoogleTest is built from source")
include(FetchContent)
FetchContent_Declare(googletest
  URL https://github.com/google/googletest/archive/refs/tags/v1.14.0.tar.gz
  URL_HASH SHA256=8ad598c73ad796e0d8280b082cebd82a630d73e73cd3c70057938a6501bba5d7
  DOWNLOAD_EXTRACT_TIMESTAMP ON)
set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
FetchContent_MakeAvailable(googletest)
foreach(library gtest gtest_main)
  target_compile_options(${library} PRIVATE -w)
endforeach()
