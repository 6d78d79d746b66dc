# SPDX-License-Identifier: BSD-3-Clause
# Language, warnings, optimisation, sanitizers, ccache.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_FLAGS "-std=c++20")
check_cxx_source_compiles("#include <concepts>\n#include <span>\n#include <bit>\nint main() { return 0; }"
                          ALTORCH_COMPILER_HAS_CXX20)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT ALTORCH_COMPILER_HAS_CXX20)
  message(FATAL_ERROR "altorch needs a C++20 compiler, and ${CMAKE_CXX_COMPILER} (${CMAKE_CXX_COMPILER_VERSION}) is "
                      "none. Install g++ 11 or newer (package g++) and point CXX to it.")
endif()

add_compile_options(-Wall -Wextra)
# Every machine computes the same bits: where the CPU has one always (64-bit Arm), GCC makes a fused
# multiply-add of a * b + c by itself.
add_compile_options(-ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict)  # GCC 12 warns of every "text" + std::string (its bug 105651)
endif()
if(ALTORCH_WERROR AND NOT ALTORCH_SANITIZE)  # sanitizers make GCC warn of code that is right
  add_compile_options(-Werror)
endif()

if(ALTORCH_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ALTORCH_FUZZ takes clang's libFuzzer: CC=clang CXX=clang++ cmake ...")
  endif()
  set(ALTORCH_SANITIZE "address,undefined")
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(ALTORCH_SANITIZE)
  if(NOT ALTORCH_SANITIZE MATCHES "^(address|thread|undefined|address,undefined)$")
    message(FATAL_ERROR
            "ALTORCH_SANITIZE=${ALTORCH_SANITIZE} is none of address, thread, undefined and address,undefined.")
  endif()
  # A sanitized extension would need a sanitized Python; the engine and its tests need none.
  set(ALTORCH_EXTENSION OFF)
  set(ALTORCH_SHIMS OFF)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g")
  add_compile_options(-fsanitize=${ALTORCH_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ALTORCH_SANITIZE})
  if(ALTORCH_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # it knows no fences; what one is for here, another process's reads, it sees neither
  endif()
  if(ALTORCH_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# ccache keeps what it compiled beside a precompiled header only when told that the header's time
# stamp and the macros __TIME__ and __DATE__ do not matter.
find_program(ALTORCH_CCACHE ccache)
if(ALTORCH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(ccache_launcher "${CMAKE_COMMAND}" -E env
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "${ALTORCH_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()

# What most files include of the standard library: parsed once per target
# (target_precompile_headers).
set(ALTORCH_STANDARD_HEADERS <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <functional>
  <map> <memory> <mutex> <optional> <span> <string> <string_view> <thread> <utility> <vector>)

# Compiles the files of one folder together, at most `size` at a time: what they include is parsed
# once a batch. Names that are local to a file are therefore unique in its folder, except in files
# that set SKIP_UNITY_BUILD_INCLUSION.
option(ALTORCH_UNITY "Compile several source files of a folder at a time" ON)
function(altorch_unity target size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ALTORCH_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(folder "${source}" DIRECTORY)
    file(RELATIVE_PATH folder "${CMAKE_SOURCE_DIR}" "${folder}")
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR batch "0${count_${folder}} / ${size}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}_${batch}")
    math(EXPR count_${folder} "0${count_${folder}} + 1")
  endforeach()
endfunction()

option(ALTORCH_MANYLINUX "For wheels: needs nothing newer than glibc 2.27 and GCC 7's libstdc++; no symbols, no path of this machine" OFF)
if(ALTORCH_MANYLINUX)
  add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=" "-ffile-prefix-map=${CMAKE_BINARY_DIR}/=")
  add_link_options(-s)
  add_library(altorch_manylinux STATIC "${CMAKE_CURRENT_LIST_DIR}/manylinux.cpp")
endif()
function(altorch_manylinux target)
  if(ALTORCH_MANYLINUX)
    target_link_libraries(${target} PRIVATE altorch_manylinux)
  endif()
endfunction()

# Of programs and libraries that are linked to the engine: variables of its headers exist once in
# the process.
function(altorch_shares_headers target)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
endfunction()
# For libraries that show each other the namespace altorch.
set(ALTORCH_EXPORTS "-Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map")

find_package(Threads REQUIRED)
