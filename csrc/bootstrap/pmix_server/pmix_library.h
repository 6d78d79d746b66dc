// SPDX-License-Identifier: BSD-3-Clause
// The functions of libpmix that the helper calls, found at run time, and pmix_info_t values to call
// them with.
#pragma once

#include <pmix.h>
#include <pmix_server.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace altorch {

struct PmixLibrary {
  decltype(&PMIx_server_init) server_init = nullptr;
  decltype(&PMIx_server_finalize) server_finalize = nullptr;
  decltype(&PMIx_generate_regex) generate_regex = nullptr;
  decltype(&PMIx_generate_ppn) generate_ppn = nullptr;
  decltype(&PMIx_server_register_nspace) register_nspace = nullptr;
  decltype(&PMIx_server_register_client) register_client = nullptr;
  decltype(&PMIx_server_setup_fork) setup_fork = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
};

// Throws std::runtime_error.
PmixLibrary load_pmix(const std::string& path);

// A list of pmix_info_t that owns what its values point to. Lives as long as PMIx may read it: for
// ever, here.
class InfoList {
 public:
  void add(const char* key, const std::string& text);
  void add(const char* key, std::uint32_t number);
  void add_rank(const char* key, pmix_rank_t rank);
  void add_flag(const char* key, bool flag);
  // A value that is itself a list.
  void add_list(const char* key, InfoList& list);

  pmix_info_t* data() { return items_.data(); }
  std::size_t size() const { return items_.size(); }

 private:
  pmix_info_t& append(const char* key, pmix_data_type_t type);
  std::vector<pmix_info_t> items_;
  std::deque<std::string> texts_;
  std::deque<pmix_data_array_t> arrays_;
};

}  // namespace altorch
