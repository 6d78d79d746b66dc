// SPDX-License-Identifier: BSD-3-Clause
// Routings of tokens as the kernels of altorch.TokenSwitch take them, and their results by plain
// loops. Elements are whole numbers, whose sums are rounded once.
#pragma once

#include "device/bench.h"

namespace altorch {

struct TokenCase {
  DType dtype;
  std::vector<int> lengths;  // tokens of each rank
  int rank, columns, experts, width;
  int capacity = 0;
  bool flat = false, shifted = false, bad = false, wide = false;
  int more = 0;  // rows of the output beyond those that come; below 0: fewer
  unsigned seed = 1;

  static constexpr int kMost = 9, kScales = 5;

  int ranks() const { return static_cast<int>(lengths.size()); }
  int local() const { return experts / ranks(); }
  int first() const { return rank * local(); }
  int each() const { return flat ? 1 : columns; }
  int rows() const { return *std::max_element(lengths.begin(), lengths.end()); }
  std::string text() const {
    return std::to_string(ranks()) + " ranks, " + std::to_string(width) + " " + name_of(dtype) +
           (flat ? ", flat" : "") + (shifted ? ", shifted" : "") + (bad ? ", out of range" : "") +
           ", capacity " + std::to_string(capacity) + ", " + std::to_string(more) + " more rows, rank " +
           std::to_string(rank);
  }
};

// The memory of one rank: before, and after pack_indices(), find_slots(), pack_rows(),
// scatter_rows() and sum_rows().
class LaidTokens {
 public:
  explicit LaidTokens(const TokenCase& given) : case_(given), random_(given.seed) {
    draw_indices();
    find_rows();
    place_routing();
    place_rows();
    place_sums();
  }

  const Image& memory() const { return memory_; }
  const Image& others() const { return others_; }
  void enqueue(Device& device, std::byte* memory, std::byte*, const std::uint32_t*, Stream stream) const {
    const auto at = [memory](std::size_t place) { return reinterpret_cast<int*>(memory + place); };
    IndexPack pack;
    pack.indices = memory + given_;
    pack.packed = at(packed_);
    std::copy_n(words_.begin() + case_.rank * stride(), TokenTable::kHeader, pack.header);
    pack.wide = case_.wide;
    pack.sent = own_length() * case_.columns;
    pack.size = stride();
    device.pack_indices(pack, stream);
    TokenTable table{.gathered = at(gathered_), .slots = at(slots_), .summary = at(summary_)};
    table.ranks = case_.ranks();
    table.max_tokens = TokenCase::kMost;
    table.columns = case_.columns;
    table.rows_per_token = case_.each();
    table.first = case_.first();
    table.local = case_.local();
    table.experts = case_.experts;
    table.capacity = case_.capacity;
    table.flat = case_.flat;
    device.find_slots(table, stream);
    RowPack columns{.number = 2, .count = static_cast<int>(own_length())};
    columns.parts[0] = {memory + rows_, memory + columns_, width(), 0, width(), column_bytes()};
    columns.parts[1] = {memory + scales_, memory + columns_ + width(), kScaleBytes, 0, kScaleBytes,
                        column_bytes()};
    device.pack_rows(columns, stream);
    RowScatter scatter{.table = table};
    scatter.parts[0] = {memory + rows_, memory + out_, width(), case_.rows() * width(), width(), width()};
    scatter.parts[1] = {memory + scales_,           memory + out_scales_, kScaleBytes,
                        case_.rows() * kScaleBytes, kScaleBytes,          kScaleBytes};
    scatter.number = 2;
    scatter.count = case_.rows();
    scatter.room = static_cast<int>(room_);
    scatter.unused = case_.more == 0 && case_.capacity == 0 ? 0 : scatter.room;
    scatter.weights = reinterpret_cast<const float*>(memory + weights_);
    scatter.weights_rank_stride = case_.rows() * case_.columns;
    scatter.weights_row_stride = case_.columns;
    scatter.out_weights = reinterpret_cast<float*>(memory + out_weights_);
    if (case_.flat) scatter.out_indices = reinterpret_cast<std::int64_t*>(memory + out_indices_);
    device.scatter_rows(scatter, stream);
    RowSum sum{.table = table, .rows = memory + out_, .output = memory + sums_};
    sum.stride = sum.width = case_.width;
    sum.count = case_.rows();
    sum.room = static_cast<int>(room_);
    device.sum_rows(sum, case_.dtype, stream);
  }

 private:
  static constexpr std::int64_t kScaleBytes = TokenCase::kScales;
  struct Entry {
    int rank, token, k;
  };

  std::int64_t stride() const { return TokenTable::kHeader + std::int64_t{TokenCase::kMost} * case_.columns; }
  std::int64_t width() const { return case_.width * static_cast<std::int64_t>(size_of(case_.dtype)); }
  std::int64_t column_bytes() const { return width() + kScaleBytes; }
  std::int64_t own_length() const { return case_.lengths[static_cast<std::size_t>(case_.rank)]; }
  int index_of(const Entry& entry) const {
    return words_[static_cast<std::size_t>(entry.rank * stride() + TokenTable::kHeader +
                                           entry.token * case_.columns + entry.k)];
  }
  bool is_here(const Entry& entry) const {
    return index_of(entry) >= case_.first() && index_of(entry) < case_.first() + case_.local();
  }
  double number_of(int rank, int token, int column) const {
    return (rank * 97 + token * 31 + column * 7) % 401;
  }
  Bytes element(double value) const {
    Bytes bytes(size_of(case_.dtype));
    if (is_half(case_.dtype)) {
      reference::put(bytes.data(), 0, reference::encode_half(case_.dtype, value));
    } else if (case_.dtype == DType::kFloat64) {
      reference::put(bytes.data(), 0, value);
    } else {
      reference::put(bytes.data(), 0, static_cast<float>(value));
    }
    return bytes;
  }
  template <class Value>
  static Bytes bytes_of(const std::vector<Value>& values) {
    const auto* const begin = reinterpret_cast<const unsigned char*>(values.data());
    return {begin, begin + values.size() * sizeof(Value)};
  }
  static void append(Bytes& bytes, const Bytes& more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
  // Calls act(entry) in the order (rank, token, k).
  template <class Act>
  void for_each_entry(const Act& act) const {
    for (int rank = 0; rank < case_.ranks(); ++rank)
      for (int token = 0; token < case_.lengths[static_cast<std::size_t>(rank)]; ++token)
        for (int k = 0; k < case_.columns; ++k) act(Entry{rank, token, k});
  }

  void draw_indices() {
    std::uniform_int_distribution<int> draw(-1, case_.experts - 1);
    for (int rank = 0; rank < case_.ranks(); ++rank) {
      const int length = case_.lengths[static_cast<std::size_t>(rank)];
      const int header[] = {0, length, case_.columns, TokenCase::kMost, case_.experts, case_.capacity, 0, 0};
      words_.insert(words_.end(), std::begin(header), std::end(header));
      for (int at = 0; at < TokenCase::kMost * case_.columns; ++at)
        words_.push_back(at < length * case_.columns ? draw(random_) : -1);
      if (case_.bad && rank == case_.rank && length > 1) {
        words_[words_.size() - static_cast<std::size_t>(TokenCase::kMost * case_.columns)] = -7;
        words_[words_.size() - static_cast<std::size_t>(TokenCase::kMost * case_.columns) + 1] = 0x7FFFFFFF;
      }
    }
  }

  // The rows of the output, in order, each with its first entry; a gap of a capacity has rank -1.
  void find_rows() {
    slots_of_.assign(static_cast<std::size_t>(case_.ranks() * TokenCase::kMost * case_.each()), -1);
    counts_.assign(static_cast<std::size_t>(case_.local()), 0);
    for_each_entry([&](const Entry& entry) {
      if (is_here(entry)) ++counts_[static_cast<std::size_t>(index_of(entry) - case_.first())];
    });
    for (const int count : counts_) received_ += count;
    if (case_.flat) {
      received_ = 0;
      for_each_entry([&](const Entry& entry) {
        if (is_here(entry) && slot_of(entry) < 0) give(entry, received_++);
      });
    } else {
      for (int expert = 0, next = 0; expert < case_.local(); ++expert) {
        if (case_.capacity) next = expert * case_.capacity;
        int& count = counts_[static_cast<std::size_t>(expert)];
        if (case_.capacity) count = std::min(count, case_.capacity);
        int taken = 0;
        for_each_entry([&](const Entry& entry) {
          if (index_of(entry) == case_.first() + expert && taken < count) give(entry, next + taken++);
        });
        next += taken;
      }
    }
    const int rows = case_.capacity ? case_.local() * case_.capacity : received_;
    room_ = static_cast<std::size_t>(std::max(rows + case_.more, 0));
    entries_.resize(room_, Entry{-1, 0, 0});
  }
  int& slot_of(const Entry& entry) {
    return slots_of_[static_cast<std::size_t>((entry.rank * TokenCase::kMost + entry.token) * case_.each() +
                                              (case_.flat ? 0 : entry.k))];
  }
  void give(const Entry& entry, int row) {
    slot_of(entry) = row;
    if (entries_.size() <= static_cast<std::size_t>(row))
      entries_.resize(static_cast<std::size_t>(row) + 1, Entry{-1, 0, 0});
    entries_[static_cast<std::size_t>(row)] = entry;
  }

  void place_routing() {
    const auto own = words_.begin() + case_.rank * stride();
    const std::vector<int> mine(own, own + stride());
    std::vector<std::int64_t> wide(mine.begin() + TokenTable::kHeader, mine.end());
    for (std::int64_t& index : wide)
      if (index == 0x7FFFFFFF) index = std::int64_t{1} << 40;
    given_ = memory_.place(case_.wide
                               ? bytes_of(wide)
                               : bytes_of(std::vector<int>(mine.begin() + TokenTable::kHeader, mine.end())));
    packed_ = place_result(bytes_of(mine), 0);
    gathered_ = memory_.place(bytes_of(words_));
    slots_ = memory_.place(Bytes(slots_of_.size() * sizeof(int), 0xEE));
    for (int rank = 0; rank < case_.ranks(); ++rank) {
      const int length = case_.lengths[static_cast<std::size_t>(rank)] * case_.each();
      const int begin = rank * TokenCase::kMost * case_.each();
      memory_.expect(
          slots_ + static_cast<std::size_t>(begin) * sizeof(int), DType::kInt32,
          bytes_of(std::vector<int>(slots_of_.begin() + begin, slots_of_.begin() + begin + length)));
    }
    int first_bad = TokenTable::kNoneBad;
    for_each_entry([&](const Entry& entry) {
      const int at = (entry.rank * TokenCase::kMost + entry.token) * case_.columns + entry.k;
      if (index_of(entry) < -1 || index_of(entry) >= case_.experts) first_bad = std::min(first_bad, at);
    });
    std::vector<int> summary = {first_bad, received_};
    summary.insert(summary.end(), counts_.begin(), counts_.end());
    for (int rank = 0; rank < case_.ranks(); ++rank) {
      const auto header = words_.begin() + rank * stride();
      summary.insert(summary.end(), header, header + TokenTable::kHeader);
    }
    summary_ = place_result(bytes_of(summary), 0);
  }

  void place_rows() {
    const std::size_t shift = case_.shifted ? size_of(case_.dtype) : 0;
    Bytes rows, scales, side_by_side, out, out_scales;
    std::vector<float> weights, out_weights;
    std::vector<std::int64_t> out_indices;
    for (int rank = 0; rank < case_.ranks(); ++rank) {
      for (int token = 0; token < case_.rows(); ++token) {
        for (int column = 0; column < case_.width; ++column)
          append(rows, element(number_of(rank, token, column)));
        append(scales, scales_of(rank, token));
        for (int k = 0; k < case_.columns; ++k) weights.push_back(weight_of({rank, token, k}));
      }
    }
    // Of the first rank's rows, as many as this rank has.
    for (std::int64_t row = 0; row < own_length(); ++row) {
      append(side_by_side, Bytes(rows.begin() + row * width(), rows.begin() + (row + 1) * width()));
      append(side_by_side, scales_of(0, static_cast<int>(row)));
    }
    for (std::size_t row = 0; row < room_; ++row) {
      const Entry entry = entries_[row];
      const bool used = entry.rank >= 0;
      for (int column = 0; column < case_.width; ++column)
        append(out, element(used ? number_of(entry.rank, entry.token, column) : 0));
      append(out_scales, used ? scales_of(entry.rank, entry.token) : Bytes(kScaleBytes, 0));
      if (!case_.flat) out_weights.push_back(used ? weight_of(entry) : 0);
      for (int k = 0; case_.flat && k < case_.columns; ++k) {
        const Entry each{entry.rank, entry.token, k};
        const bool here = used && is_here(each);
        out_weights.push_back(here ? weight_of(each) : 0);
        out_indices.push_back(here ? index_of(each) : -1);
      }
    }
    rows_ = memory_.place(rows, shift);
    scales_ = memory_.place(scales);
    weights_ = memory_.place(bytes_of(weights));
    columns_ = place_result(side_by_side, shift);
    out_ = place_result(out, shift);
    out_scales_ = place_result(out_scales, 0);
    out_weights_ = place_result(bytes_of(out_weights), 0);
    out_indices_ = place_result(bytes_of(out_indices), 0);
  }
  static Bytes scales_of(int rank, int token) {
    Bytes scales;
    for (int i = 0; i < TokenCase::kScales; ++i)
      scales.push_back(static_cast<unsigned char>(1 + rank * 50 + token * 5 + i));
    return scales;
  }
  static float weight_of(const Entry& entry) {
    return static_cast<float>(1 + entry.rank * 100 + entry.token * 10 + entry.k);
  }

  // What the rows of the output add up to again.
  void place_sums() {
    const auto row_bytes = static_cast<std::size_t>(width());
    sums_ = memory_.place(Bytes(static_cast<std::size_t>(case_.ranks() * case_.rows()) * row_bytes, 0xEE),
                          case_.shifted ? size_of(case_.dtype) : 0);
    for (int rank = 0; rank < case_.ranks(); ++rank) {
      for (int token = 0; token < case_.lengths[static_cast<std::size_t>(rank)]; ++token) {
        int times = 0;
        for (int k = 0; k < case_.each(); ++k) {
          const int slot = slot_of({rank, token, k});
          times += slot >= 0 && slot < static_cast<int>(room_);
        }
        Bytes sum;
        for (int column = 0; column < case_.width; ++column) {
          // The rows are rounded to the type; their sum is rounded once more.
          const double one = rounded(number_of(rank, token, column));
          append(sum, element(times * one));
        }
        memory_.expect(sums_ + static_cast<std::size_t>(rank * case_.rows() + token) * row_bytes, case_.dtype,
                       sum);
      }
    }
  }
  double rounded(double value) const {
    if (!is_half(case_.dtype)) return value;
    const Bytes bytes = element(value);
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data(), sizeof half);
    return reference::decode_half(case_.dtype, half);
  }
  std::size_t place_result(const Bytes& expected, std::size_t shift) {
    const std::size_t at = memory_.place(Bytes(expected.size(), 0xEE), shift);
    memory_.expect(at, DType::kUInt8, expected);
    return at;
  }

  const TokenCase case_;
  std::minstd_rand random_;
  Image memory_, others_;
  std::vector<int> words_, slots_of_, counts_;
  std::vector<Entry> entries_;
  int received_ = 0;
  std::size_t room_ = 0;
  std::size_t given_ = 0, packed_ = 0, gathered_ = 0, slots_ = 0, summary_ = 0, rows_ = 0, scales_ = 0,
              weights_ = 0, columns_ = 0, out_ = 0, out_scales_ = 0, out_weights_ = 0, out_indices_ = 0,
              sums_ = 0;
};

inline std::optional<std::string> run_alone(Bench& bench, const TokenCase& tokens) {
  return bench.run_alone(LaidTokens(tokens), nullptr);
}

inline std::vector<TokenCase> token_cases() {
  std::vector<TokenCase> cases;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const int rank : {0, 1}) {
      for (const bool flat : {false, true}) {
        const bool shifted = (rank == 1) != flat;
        cases.push_back({dtype, {6, 9}, rank, 3, 4, 33, 0, flat, shifted});
        cases.push_back({dtype, {6, 9}, rank, 3, 4, 40, 0, flat, shifted, !shifted, rank == 0, 3});
        cases.push_back({dtype, {6, 9, 0}, rank, 5, 6, 16, 0, flat, false, false, false, -2});
      }
      cases.push_back({dtype, {9, 4}, rank, 3, 4, 33, 3, false, rank == 1, false, true});
      cases.push_back({dtype, {9, 4}, rank, 3, 4, 8, 3, false, false, false, true, 2});
      cases.push_back({dtype, {9, 4}, rank, 3, 4, 8, 20, false, false, false, true, 2});  // with gaps
    }
  }
  for (const bool flat : {false, true}) {
    cases.push_back({DType::kFloat32, {0, 5}, 0, 1, 4, 1100, 0, flat});
    cases.push_back({DType::kFloat32, {0, 5}, 1, 9, 2, 4, 0, flat});
    cases.push_back({DType::kFloat32, {9}, 0, 2, 3, 8, 0, flat, true, true, true});
  }
  return cases;
}

}  // namespace altorch
