// SPDX-License-Identifier: BSD-3-Clause
#include "platform/fabric.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <set>

#include "platform/cores.h"

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

// Of the device; empty where there are none, or it does not say.
std::string cores_beside(const std::string& device, const std::string& sys) {
  int domain = -1;
  std::string cores;
  if (std::ifstream(device + "/device/numa_node") >> domain && domain >= 0)
    std::ifstream(sys + "/devices/system/node/node" + std::to_string(domain) + "/cpulist") >> cores;
  return cores;
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

bool is_near_network(const std::string& cores, const std::string& sys) {
  std::set<std::string> devices;
  for (const std::string& port : active_rdma_ports(sys + "/class/infiniband"))
    devices.insert(sys + "/class/infiniband/" + port.substr(0, port.find(':')));
  for (const std::string& name : names_in(sys + "/class/cxi")) devices.insert(sys + "/class/cxi/" + name);
  return std::any_of(devices.begin(), devices.end(), [&](const std::string& device) {
    const std::string beside = cores_beside(device, sys);
    const auto count = count_cores(std::array{beside});
    return count && count == count_cores(std::array{beside, cores});
  });
}

bool has_fast_network() { return !active_rdma_ports().empty() || has_slingshot(); }

bool may_choose_netmod() {
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  return !has_fast_network() && !is_set("MPIR_CVAR_CH4_NETMOD") && !is_set("UCX_TLS") &&
         !is_set("UCX_NET_DEVICES");
}

}  // namespace altorch
