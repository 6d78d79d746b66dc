// SPDX-License-Identifier: BSD-3-Clause
// Replays a corpus, and mutations of it that are the same in each run.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz/target.h"

namespace altorch::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kLongest = 4096;

std::vector<Bytes> corpus_of(const std::string& name) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ALTORCH_FUZZ_CORPUS "/" + name))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// Alike with every standard library: only the engine's own numbers are used.
class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& corpus) : corpus_(corpus) {}
  Bytes next() {
    Bytes bytes = corpus_[below(corpus_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
    if (bytes.size() > kLongest) bytes.resize(kLongest);
    return bytes;
  }

 private:
  std::size_t below(std::size_t bound) { return engine_() % bound; }
  void change(Bytes& bytes) {
    static constexpr std::uint8_t kTelling[] = {0, 1, 0x7f, 0x80, 0xff, ' ', '-', '0', '9', ':', '\n'};
    const std::size_t at = below(bytes.size() + 1);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const bool inside = at < bytes.size();
    switch (below(6)) {
      case 0:
        if (inside) bytes[at] = kTelling[below(std::size(kTelling))];
        break;
      case 1:
        if (inside) bytes[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 2:
        bytes.insert(place, 1 + below(12), kTelling[below(std::size(kTelling))]);
        break;
      case 3:
        bytes.erase(place, place + static_cast<std::ptrdiff_t>(below(bytes.size() - at + 1)));
        break;
      case 4:
        bytes.resize(at);
        break;
      default: {
        const Bytes& other = corpus_[below(corpus_.size())];
        bytes.insert(place, other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1)),
                     other.end());
      }
    }
  }

  const std::vector<Bytes>& corpus_;
  std::mt19937_64 engine_{1};
};

std::string in_hex(const Bytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

}  // namespace

void replay(const std::string& name, Target target, int mutations) {
  const std::vector<Bytes> corpus = corpus_of(name);
  ASSERT_FALSE(corpus.empty()) << "tests/fuzz/corpus/" << name << " is missing";
  const auto run = [&](const Bytes& bytes) {
    try {
      run_once(target, bytes.data(), bytes.size());
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << " at the input " << in_hex(bytes);
    }
  };
  run({});
  for (const Bytes& bytes : corpus) run(bytes);
  Mutator mutator(corpus);
  for (int i = 0; i < mutations; ++i) run(mutator.next());
}

}  // namespace altorch::fuzz
