// SPDX-License-Identifier: BSD-3-Clause
#include "transports/mpi/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace altorch {
namespace {

std::string last_dl_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown reason";
}

// "abi": the library says that it speaks the standard ABI. MPICH 5's classic library also has the
// question, and answers it with -1. Open MPI is known by its predefined handles, which are objects
// with names of their own; everything else that exists today follows MPICH's ABI.
std::string abi_of(void* library) {
  using AbiVersion = int (*)(int*, int*);
  if (auto abi_version = reinterpret_cast<AbiVersion>(dlsym(library, "MPI_Abi_get_version"))) {
    int major = -1, minor = -1;
    if (abi_version(&major, &minor) == 0 && major > 0) return "abi";
  }
  if (dlsym(library, "ompi_mpi_comm_self") != nullptr) return "openmpi";
  return "mpich";
}

MpiFamily family_of(const std::string& version) {
  if (version.find("Open MPI") != std::string::npos) return MpiFamily::kOpenMpi;
  for (const char* word : {"MPICH", "Intel(R) MPI", "MVAPICH", "CRAY"}) {
    if (version.find(word) != std::string::npos) return MpiFamily::kMpich;
  }
  return MpiFamily::kOther;
}

int major_of(const std::string& version) {
  std::size_t digit = version.find_first_of("0123456789");
  return digit == std::string::npos ? 0 : std::atoi(version.c_str() + digit);
}

// One line: MPICH writes several, with tabs between key and value; Open MPI goes on about its
// package.
std::string tidy_version(const char* text) {
  std::string line;
  for (const char* c = text; *c != '\0' && *c != '\n' && *c != ','; ++c) {
    char letter = *c == '\t' ? ' ' : *c;
    if (letter == ' ' && (line.empty() || line.back() == ' ')) continue;
    line += letter;
  }
  return line;
}

// MPICH says "MPICH Device: ch4:ucx ofi" in a line of its own.
bool has_ucx_and_ofi(std::string_view text) {
  const std::size_t begin = text.find("MPICH Device:");
  if (begin == text.npos) return false;
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  return line.find("ucx") != line.npos && line.find("ofi") != line.npos;
}

}  // namespace

MpiLibrary load_mpi_library(const std::string& path, const std::string& shim_directory) {
  MpiLibrary library;
  library.path = path;
  void* mpi = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (mpi == nullptr) {
    std::string reason = last_dl_error();
    std::string remedy =
        reason.find("file too short") != std::string::npos ||
                reason.find("invalid ELF header") != std::string::npos
            ? " It is a linker script: name the versioned file beside it, such as libmpi.so.12."
            : "";
    throw Error(ErrorKind::kUnsupported, "The MPI library cannot be loaded: " + reason + "." + remedy);
  }
  if (dlsym(mpi, "MPI_Init_thread") == nullptr) {
    throw Error(ErrorKind::kUnsupported, path + " is not an MPI library: it has no MPI_Init_thread.");
  }
  library.abi = abi_of(mpi);
  std::string shim_path = shim_directory + "/libaltorch_mpi_" + library.abi + ".so";
  void* shim = dlopen(shim_path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (shim == nullptr) {
    throw Error(ErrorKind::kUnsupported,
                "No shim for the MPI library " + path + " (ABI '" + library.abi + "'): " + last_dl_error() +
                    ". Build altorch where the headers of this kind of MPI are installed, "
                    "or choose another library with ALTORCH_MPI.");
  }
  library.table = static_cast<const AltorchMpiTable*>(dlsym(shim, ALTORCH_MPI_TABLE_SYMBOL));
  if (library.table == nullptr || library.table->version != ALTORCH_MPI_TABLE_VERSION) {
    throw Error(ErrorKind::kUnsupported,
                shim_path + " belongs to another version of altorch: install altorch again.");
  }
  for (const char* symbol : ALTORCH_MPI_ONE_SIDED_SYMBOLS) {
    if (dlsym(mpi, symbol) == nullptr) library.one_sided_lacks = symbol;
  }
  char text[8192] = "";
  library.table->library_version(text, sizeof(text));
  library.version = tidy_version(text);
  library.family = family_of(library.version);
  library.major = major_of(library.version);
  library.has_ucx_and_ofi = has_ucx_and_ofi(text);
  return library;
}

}  // namespace altorch
