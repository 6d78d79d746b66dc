// SPDX-License-Identifier: BSD-3-Clause
// A variable of the environment, set for as long as this lives.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace altorch::fuzz {

// putenv() takes the text itself; setenv() keeps a copy of every value that it has ever seen,
// millions here.
class Variable {
 public:
  Variable(const char* name, const std::string& value)
      : name_(name), entry_(std::string(name) + "=" + value) {
    if (const char* before = std::getenv(name)) before_ = before;
    putenv(entry_.data());
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;

 private:
  const char* const name_;
  std::string entry_;
  std::optional<std::string> before_;
};

}  // namespace altorch::fuzz
