// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/pmix_server/pmix_library.h"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

namespace altorch {
namespace {

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("this PMIx has no ") + name);
}

}  // namespace

PmixLibrary load_pmix(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  PmixLibrary pmix;
  find(library, "PMIx_server_init", pmix.server_init);
  find(library, "PMIx_server_finalize", pmix.server_finalize);
  find(library, "PMIx_generate_regex", pmix.generate_regex);
  find(library, "PMIx_generate_ppn", pmix.generate_ppn);
  find(library, "PMIx_server_register_nspace", pmix.register_nspace);
  find(library, "PMIx_server_register_client", pmix.register_client);
  find(library, "PMIx_server_setup_fork", pmix.setup_fork);
  find(library, "PMIx_Error_string", pmix.error_string);
  return pmix;
}

pmix_info_t& InfoList::append(const char* key, pmix_data_type_t type) {
  pmix_info_t item;
  std::memset(&item, 0, sizeof(item));
  std::strncpy(item.key, key, PMIX_MAX_KEYLEN);
  item.value.type = type;
  items_.push_back(item);
  return items_.back();
}

void InfoList::add(const char* key, const std::string& text) {
  texts_.push_back(text);
  append(key, PMIX_STRING).value.data.string = texts_.back().data();
}

void InfoList::add(const char* key, std::uint32_t number) {
  append(key, PMIX_UINT32).value.data.uint32 = number;
}
void InfoList::add_rank(const char* key, pmix_rank_t rank) {
  append(key, PMIX_PROC_RANK).value.data.rank = rank;
}
void InfoList::add_flag(const char* key, bool flag) { append(key, PMIX_BOOL).value.data.flag = flag; }

void InfoList::add_list(const char* key, InfoList& list) {
  arrays_.push_back({PMIX_INFO, list.size(), list.data()});
  append(key, PMIX_DATA_ARRAY).value.data.darray = &arrays_.back();
}

}  // namespace altorch
