// SPDX-License-Identifier: BSD-3-Clause
#include "platform/fabric.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace altorch {
namespace {

class Fabric : public testing::Test {
 protected:
  Fabric() { std::filesystem::create_directories(root_); }
  ~Fabric() override { std::filesystem::remove_all(root_); }

  void add_port(const std::string& device, const std::string& port, const std::string& state) {
    const std::string folder = root_ + "/" + device + "/ports/" + port;
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/state") << state << "\n";
  }

  const std::string root_ = testing::TempDir() + "fabric-" + std::to_string(getpid());
};

TEST_F(Fabric, AllActivePortsAreNamed) {
  add_port("mlx5_0", "1", "4: ACTIVE");
  add_port("mlx5_0", "2", "4: ACTIVE");
  add_port("mlx5_1", "1", "1: DOWN");
  add_port("rdmap0s6", "1", "4: ACTIVE");
  EXPECT_EQ(active_rdma_ports(root_), (std::vector<std::string>{"mlx5_0:1", "mlx5_0:2", "rdmap0s6:1"}));
}

TEST_F(Fabric, WithoutDevicesThereAreNoPorts) {
  EXPECT_TRUE(active_rdma_ports(root_).empty());
  EXPECT_TRUE(active_rdma_ports(root_ + "/missing").empty());
}

TEST_F(Fabric, APortThatDoesNotTellItsStateIsNamed) {
  std::filesystem::create_directories(root_ + "/mlx5_0/ports/2");
  std::filesystem::create_directories(root_ + "/mlx5_1");
  EXPECT_EQ(active_rdma_ports(root_), (std::vector<std::string>{"mlx5_0:2", "mlx5_1:1"}));
}

class NearNetwork : public Fabric {
 protected:
  NearNetwork() {
    write("devices/system/node/node0/cpulist", "0-3,8-11");
    write("devices/system/node/node1/cpulist", "4-7,12-15");
  }
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  bool is_near(const std::string& cores) const { return is_near_network(cores, root_); }
};

TEST_F(NearNetwork, IsWhereAnActiveDeviceIsInTheDomainOfAllCores) {
  add_port("class/infiniband/mlx5_0", "1", "1: DOWN");
  write("class/infiniband/mlx5_0/device/numa_node", "0");
  add_port("class/infiniband/mlx5_1", "1", "4: ACTIVE");
  write("class/infiniband/mlx5_1/device/numa_node", "1");
  EXPECT_TRUE(is_near("5") && is_near("4-7,12-15"));
  EXPECT_FALSE(is_near("0-1") || is_near("3-4") || is_near("0-15"));
  EXPECT_FALSE(is_near("")) << "unknown cores";
  write("class/cxi/cxi0/device/numa_node", "0");
  EXPECT_TRUE(is_near("0-1") && is_near("5"));
}

TEST_F(NearNetwork, IsNowhereWithoutDevicesOrDomains) {
  EXPECT_FALSE(is_near("5"));
  add_port("class/infiniband/mlx5_1", "1", "4: ACTIVE");
  EXPECT_FALSE(is_near("5"));
  write("class/infiniband/mlx5_1/device/numa_node", "-1");
  EXPECT_FALSE(is_near("5"));
  write("class/infiniband/mlx5_1/device/numa_node", "7");
  EXPECT_FALSE(is_near("5"));
}

}  // namespace
}  // namespace altorch
