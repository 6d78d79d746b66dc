// SPDX-License-Identifier: BSD-3-Clause
// The environment that MPI_Init reads: cleaned of what another launcher left, set to what our
// bootstrap serves, and put back afterwards, so that child processes see none of it.
//
// Thread rules: setenv is not thread safe against getenv; the caller starts MPI from one thread,
// early.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace altorch {

class ScopedEnvironment {
 public:
  ScopedEnvironment() = default;
  ~ScopedEnvironment() { restore(); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

  void set(const std::string& name, const std::string& value);
  // The user's own value wins.
  void set_default(const std::string& name, const std::string& value);
  void unset(const std::string& name);
  // Unsets every variable by which a process manager hands an MPI process its identity.
  void scrub_launcher_variables();
  void restore();

 private:
  void remember(const std::string& name);
  std::map<std::string, std::optional<std::string>> before_;
};

// Whether scrub_launcher_variables() would take this one.
bool is_launcher_variable(const std::string& name);

}  // namespace altorch
