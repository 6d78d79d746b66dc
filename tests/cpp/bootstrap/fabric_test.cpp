// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/fabric.h"

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

}  // namespace
}  // namespace altorch
