// SPDX-License-Identifier: BSD-3-Clause
// PMI-1's C functions over the socket of bootstrap/pmi1_server.h: what Open MPI 4.x loads through
// its pmix/flux component (FLUX_PMI_LIBRARY_PATH). The functions and their codes are those of PMI
// version 1.
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#define PMI_FUNCTION extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kSuccess = 0, kFail = -1, kNotInitialised = 1, kInvalidLength = 11;
constexpr std::size_t kLongestAnswer = 1 << 20;

struct Client {
  std::mutex mutex;
  int fd = -1;
  int rank = -1, size = 0;
  std::string job;
  int max_name = 0, max_key = 0, max_value = 0;
  std::vector<int> node_mates;
  std::string pending;
};
Client& client() {
  // Never destroyed: MPI may be finalised from an exit handler.
  static Client* instance = new Client;
  return *instance;
}

std::string field(const std::string& line, const char* key) {
  const std::string wanted = std::string(" ") + key + "=";
  const std::size_t at = line.find(wanted);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + wanted.size();
  // A value may contain anything but the end of the line.
  const std::size_t end = line.find_first_of(std::strcmp(key, "value") == 0 ? "\n" : " \n", begin);
  return line.substr(begin, end - begin);
}

// Sends a line and returns the answer, empty when the socket is gone.
std::string ask(const std::string& line) {
  Client& self = client();
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = send(self.fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return "";
    sent += static_cast<std::size_t>(n);
  }
  std::size_t end;
  while ((end = self.pending.find('\n')) == std::string::npos) {
    char buffer[4096];
    if (self.pending.size() > kLongestAnswer) return "";
    const ssize_t n = recv(self.fd, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return "";
    self.pending.append(buffer, static_cast<std::size_t>(n));
  }
  std::string answer = self.pending.substr(0, end + 1);
  self.pending.erase(0, end + 1);
  return answer;
}

bool succeeded(const std::string& answer) { return field(answer, "rc") == "0"; }

int number_of(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : -1;
}

int copy_out(const std::string& text, char* target, int capacity) {
  if (static_cast<int>(text.size()) >= capacity) return kInvalidLength;
  std::memcpy(target, text.c_str(), text.size() + 1);
  return kSuccess;
}

void read_node_mates(const std::string& answer) {
  Client& self = client();
  self.node_mates.clear();
  const std::string list = field(answer, "ranks");
  for (std::size_t at = 0; at < list.size(); ++at) {
    self.node_mates.push_back(std::atoi(list.c_str() + at));
    at = std::min(list.find(',', at), list.size());
  }
}

// Every query is a number that PMI_Init has fetched.
int give(int Client::*member, int* out) {
  Client& self = client();
  std::lock_guard guard(self.mutex);
  if (self.fd < 0) return kNotInitialised;
  *out = self.*member;
  return kSuccess;
}

}  // namespace

PMI_FUNCTION PMI_Init(int* spawned) {
  Client& self = client();
  std::lock_guard guard(self.mutex);
  if (spawned != nullptr) *spawned = 0;
  if (self.fd >= 0) return kSuccess;
  self.fd = number_of("PMI_FD");
  self.rank = number_of("PMI_RANK");
  self.size = number_of("PMI_SIZE");
  if (self.fd < 0 || !succeeded(ask("cmd=init pmi_version=1 pmi_subversion=1\n"))) {
    self.fd = -1;
    return kFail;
  }
  const std::string maxes = ask("cmd=get_maxes\n");
  self.max_name = std::atoi(field(maxes, "kvsname_max").c_str());
  self.max_key = std::atoi(field(maxes, "keylen_max").c_str());
  self.max_value = std::atoi(field(maxes, "vallen_max").c_str());
  self.job = field(ask("cmd=get_my_kvsname\n"), "kvsname");
  read_node_mates(ask("cmd=get_node_mates\n"));
  return self.job.empty() ? kFail : kSuccess;
}

PMI_FUNCTION PMI_Initialized(int* flag) {
  std::lock_guard guard(client().mutex);
  *flag = client().fd >= 0 ? 1 : 0;
  return kSuccess;
}

PMI_FUNCTION PMI_Finalize() {
  std::lock_guard guard(client().mutex);
  if (client().fd < 0) return kNotInitialised;
  ask("cmd=finalize\n");
  return kSuccess;
}

PMI_FUNCTION PMI_Abort(int code, const char*) {
  // The process ends itself: there is no other place from which its peers could be ended.
  std::_Exit(code != 0 ? code : 1);
}

PMI_FUNCTION PMI_Get_rank(int* rank) { return give(&Client::rank, rank); }
PMI_FUNCTION PMI_Get_size(int* size) { return give(&Client::size, size); }
PMI_FUNCTION PMI_Get_universe_size(int* size) { return give(&Client::size, size); }
PMI_FUNCTION PMI_KVS_Get_name_length_max(int* length) { return give(&Client::max_name, length); }
PMI_FUNCTION PMI_Get_id_length_max(int* length) { return give(&Client::max_name, length); }
PMI_FUNCTION PMI_KVS_Get_key_length_max(int* length) { return give(&Client::max_key, length); }
PMI_FUNCTION PMI_KVS_Get_value_length_max(int* length) { return give(&Client::max_value, length); }

PMI_FUNCTION PMI_Get_appnum(int* number) {
  *number = 0;
  return kSuccess;
}

PMI_FUNCTION PMI_Get_clique_size(int* size) {
  std::lock_guard guard(client().mutex);
  *size = static_cast<int>(client().node_mates.size());
  return client().fd >= 0 ? kSuccess : kNotInitialised;
}

PMI_FUNCTION PMI_Get_clique_ranks(int* ranks, int capacity) {
  std::lock_guard guard(client().mutex);
  const std::vector<int>& mates = client().node_mates;
  if (capacity < static_cast<int>(mates.size())) return kInvalidLength;
  std::copy(mates.begin(), mates.end(), ranks);
  return kSuccess;
}

PMI_FUNCTION PMI_KVS_Get_my_name(char* name, int capacity) {
  std::lock_guard guard(client().mutex);
  return client().fd >= 0 ? copy_out(client().job, name, capacity) : kNotInitialised;
}
PMI_FUNCTION PMI_Get_id(char* name, int capacity) { return PMI_KVS_Get_my_name(name, capacity); }
PMI_FUNCTION PMI_Get_kvs_domain_id(char* name, int capacity) { return PMI_KVS_Get_my_name(name, capacity); }

PMI_FUNCTION PMI_KVS_Put(const char* job, const char* key, const char* value) {
  std::lock_guard guard(client().mutex);
  if (client().fd < 0) return kNotInitialised;
  const std::string line = std::string("cmd=put kvsname=") + job + " key=" + key + " value=" + value + "\n";
  return succeeded(ask(line)) ? kSuccess : kFail;
}

// A put is out at once.
PMI_FUNCTION PMI_KVS_Commit(const char*) { return kSuccess; }

PMI_FUNCTION PMI_KVS_Get(const char* job, const char* key, char* value, int capacity) {
  std::lock_guard guard(client().mutex);
  if (client().fd < 0) return kNotInitialised;
  const std::string answer = ask(std::string("cmd=get kvsname=") + job + " key=" + key + "\n");
  return succeeded(answer) ? copy_out(field(answer, "value"), value, capacity) : kFail;
}

PMI_FUNCTION PMI_Barrier() {
  std::lock_guard guard(client().mutex);
  if (client().fd < 0) return kNotInitialised;
  return succeeded(ask("cmd=barrier_in\n")) ? kSuccess : kFail;
}

PMI_FUNCTION PMI_Publish_name(const char*, const char*) { return kFail; }
PMI_FUNCTION PMI_Unpublish_name(const char*) { return kFail; }
PMI_FUNCTION PMI_Lookup_name(const char*, char*) { return kFail; }
