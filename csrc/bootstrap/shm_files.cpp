// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/shm_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

namespace altorch {

std::string remove_shm_names(int local_rank) {
  const std::string own = "." + std::to_string(local_rank);
  std::string wanted_back;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find("/dev/shm/");
    if (at == std::string::npos || line.ends_with(" (deleted)")) continue;
    const std::string path = line.substr(at);
    const std::string name = path.substr(path.rfind('/') + 1);
    const bool open_mpi_4 = name.starts_with("vader_segment.");
    const bool open_mpi_5 = name.starts_with("sm_segment.");
    // One file for all ranks of the node: the first one removes it.
    const bool mpich = name.starts_with("mpich_shm_");
    if (!mpich && !((open_mpi_4 || open_mpi_5) && name.ends_with(own))) continue;
    if (unlink(path.c_str()) == 0 && open_mpi_4) wanted_back = path;
  }
  return wanted_back;
}

void put_back(const std::string& segment_name) {
  const int file = open(segment_name.c_str(), O_CREAT | O_EXCL | O_CLOEXEC | O_WRONLY, 0600);
  if (file >= 0) close(file);
}

}  // namespace altorch
