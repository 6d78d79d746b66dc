// SPDX-License-Identifier: BSD-3-Clause
// What the engine needs of a rendezvous: a key-value store that all ranks share. backend/
// implements it over the c10d Store, tests over a std::map. No key is ever deleted: if a key of a
// c10d Store disappeared between check() and get(), get() would block for the timeout of that
// Store.
//
// Thread rules: every method may be called from any thread. Errors are thrown as altorch::Error:
// kTimeout when the store does not answer, or a wait passes its deadline; kTransport when it fails.
// A set(), set_once() or add() that throws kTimeout is not lost: it is carried out later, in the
// order of this process's requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace altorch {

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Sets the key unless it exists, in one atomic request: of several ranks that call it, one sets
  // the value that all read.
  virtual void set_once(const std::string& key, const std::string& value) = 0;
  // Blocks until the key exists.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Never blocks on a missing key.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  // All values in one request, or nothing while a key is missing.
  virtual std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) = 0;
  // Adds to a counter that starts at 0 and returns the new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;

  // False when the process that hosts it has gone, as far as 100 ms can show. A request to it would
  // fail, and torch would log a stack trace.
  virtual bool is_hosted() { return true; }
  // A rank calls it repeatedly while it waits for peers. Throws Error if a peer cannot come any
  // more.
  virtual void check_peers() {}
};

}  // namespace altorch
