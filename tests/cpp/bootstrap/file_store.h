// SPDX-License-Identifier: BSD-3-Clause
// A KeyValueStore in a directory, so that tests can start processes without a server.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/error.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

class FileStore : public KeyValueStore {
 public:
  explicit FileStore(std::string directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
  }

  void set(const std::string& key, const std::string& value) override {
    const std::string draft = path(key) + ".draft" + std::to_string(getpid()) + "." +
                              std::to_string(std::hash<std::thread::id>{}(std::this_thread::get_id()));
    std::ofstream(draft, std::ios::binary) << value;
    std::filesystem::rename(draft, path(key));
  }

  void set_once(const std::string& key, const std::string& value) override {
    const std::string lock = directory_ + "/.lock";
    const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    flock(fd, LOCK_EX);
    if (!try_get(key)) set(key, value);
    close(fd);
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
      if (auto value = try_get(key)) return *value;
      if (std::chrono::steady_clock::now() > deadline)
        throw Error(ErrorKind::kTimeout, "no key " + key + " in time");
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

  std::optional<std::string> try_get(const std::string& key) override {
    std::ifstream file(path(key), std::ios::binary);
    if (!file) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override {
    std::vector<std::string> found;
    for (const std::string& key : keys) {
      auto value = try_get(key);
      if (!value) return std::nullopt;
      found.push_back(*std::move(value));
    }
    return found;
  }

  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::string lock = directory_ + "/.lock";
    const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    flock(fd, LOCK_EX);
    const std::int64_t sum = std::stoll(try_get(key).value_or("0")) + amount;
    set(key, std::to_string(sum));
    close(fd);
    return sum;
  }

 private:
  // Keys may hold slashes and be long.
  std::string path(const std::string& key) const {
    std::string name;
    for (char c : key) name += c == '/' ? '%' : c;
    return directory_ + "/" + name;
  }

  std::string directory_;
};

}  // namespace altorch
