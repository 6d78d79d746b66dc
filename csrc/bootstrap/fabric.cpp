// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/fabric.h"

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace altorch {
namespace {

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const open = opendir(folder.c_str());
  if (!open) return names;
  while (const dirent* entry = readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

// The file holds "4: ACTIVE". A port whose state cannot be read may be active, and a warning of UCX
// is better than a port that lies idle.
bool may_be_active(const std::string& port) {
  std::string state;
  std::ifstream(port + "/state") >> state;
  return state.empty() || state == "4:";
}

}  // namespace

std::vector<std::string> active_rdma_ports(const std::string& devices) {
  std::vector<std::string> active;
  for (const std::string& device : names_in(devices)) {
    const std::string folder = devices + "/" + device + "/ports";
    std::vector<std::string> ports = names_in(folder);
    if (ports.empty()) ports.emplace_back("1");
    for (const std::string& port : ports) {
      if (may_be_active(folder + "/" + port)) active.push_back(device + ":" + port);
    }
  }
  return active;
}

bool has_slingshot() { return !names_in("/sys/class/cxi").empty(); }

bool has_fast_network() { return !names_in("/sys/class/infiniband").empty() || has_slingshot(); }

bool may_choose_netmod() {
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  return !has_fast_network() && !is_set("MPIR_CVAR_CH4_NETMOD") && !is_set("UCX_TLS") &&
         !is_set("UCX_NET_DEVICES");
}

}  // namespace altorch
