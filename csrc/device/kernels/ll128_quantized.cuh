// SPDX-License-Identifier: BSD-3-Clause
// LL128 reduction of values that travel in 8 bits: a lane packs what it pushes, and adds what it
// takes in float32. Among more than two ranks, the sums are packed once more. Include after
// ll128_reduce.cuh and quantized.cuh.

namespace altorch::kernels {

// A vector of which a unit of 60 packs holds kQuantizedUnit elements.
template <class Number, class Code>
struct QuantizedPacks {
  using Stored = typename Number::Stored;
  static constexpr bool kEndsApart = false, kAreKept = true;
  const Stored* elements;
  i64 count;

  AL_DEVICE static QuantizedPacks of(const void* data, i64 bytes) {
    return {static_cast<const Stored*>(data), count_in(bytes)};
  }
  AL_DEVICE static i64 in_rounds(i64 bytes) { return bytes; }
  AL_DEVICE int units() const { return static_cast<int>((count + kQuantizedUnit - 1) / kQuantizedUnit); }
  AL_DEVICE LanePacks load(int unit, int lane) const {
    if (are_whole(unit)) {
      Pairs pairs[2];
      load_pairs(unit, lane, pairs);
      return {packed(pairs[0]), packed(pairs[1])};
    }
    const i64 at = first_element(unit, lane);
    LanePacks loaded = {{0, 0}, {0, 0}};
    if (at < count) loaded.first = packed(elements + at, count - at);
    if (!carries_number(lane) && at + kSecond < count)
      loaded.second = packed(elements + at + kSecond, count - at - kSecond);
    return loaded;
  }
  // As load_units(): of half types all loads of a round are in flight at once, of others those of a
  // unit.
  AL_DEVICE void load_round(const Warp& warp, int round, UnitsOfRound& units) const {
    constexpr int kTogether = sizeof(Stored) == 2 ? kUnitsOfRound : 1;
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; place += kTogether) {
      if (!are_whole(unit_of(warp, round, place + kTogether - 1))) {
        AL_UNROLL for (int t = 0; t < kTogether; ++t) {
          for (int i = 0; i < AL_LANES; ++i)
            units[place + t][i] = load(unit_of(warp, round, place + t), AL_LANE(i));
        }
        continue;
      }
      for (int i = 0; i < AL_LANES; ++i) {
        Pairs pairs[kTogether][2];
        AL_UNROLL for (int t = 0; t < kTogether; ++t)
          load_pairs(unit_of(warp, round, place + t), AL_LANE(i), pairs[t]);
        AL_UNROLL for (int t = 0; t < kTogether; ++t)
          units[place + t][i] = {packed(pairs[t][0]), packed(pairs[t][1])};
      }
    }
  }
  AL_DEVICE static void store(void* data, i64 bytes, int unit, int lane, const OfLane<QuantizedValues>& given) {
    const i64 at = first_element(unit, lane), count = count_in(bytes);
    auto* const to = static_cast<Stored*>(data);
    if (at < count) given.first.template store<Number>(to + at, count - at);
    if (!carries_number(lane) && at + kSecond < count)
      given.second.template store<Number>(to + at + kSecond, count - at - kSecond);
  }
  AL_DEVICE static void store_all(void* data, i64 bytes, int unit, int lane, const LanePacks& given) {
    store(data, bytes, unit, lane, {unpacked(given.first), unpacked(given.second)});
  }
  AL_DEVICE static void store_poison(void* data, i64 bytes, int unit, int lane, u64) {
    store(data, bytes, unit, lane, {QuantizedValues::nan(), QuantizedValues::nan()});
  }

 private:
  using Pairs = QuantizedPairs<Stored>;
  static constexpr int kSecond = 2 * kRowPacks;  // elements between a lane's packs
  // Whether the vector has all of this unit, and of those before.
  AL_DEVICE bool are_whole(int unit) const {
    return (static_cast<i64>(unit) + 1) * kQuantizedUnit <= count && Pairs::is_aligned(elements);
  }
  // A lane with a number has one pack: what it loads beside it is not used.
  AL_DEVICE void load_pairs(int unit, int lane, Pairs (&pairs)[2]) const {
    const Stored* const from = elements + first_element(unit, lane);
    pairs[0].load(from);
    pairs[1].load(carries_number(lane) ? from : from + kSecond);
  }
  AL_DEVICE static Halves packed(const Pairs& pairs) {
    QuantizedValues values;
    values.template load<Number>(pairs);
    return __builtin_bit_cast(Halves, values.template pack<Code>());
  }
  AL_DEVICE static i64 count_in(i64 bytes) { return bytes / static_cast<i64>(sizeof(Stored)); }
  AL_DEVICE static i64 first_element(int unit, int lane) {
    return static_cast<i64>(unit) * kQuantizedUnit + 2 * first_pack(lane);
  }
  AL_DEVICE static Halves packed(const Stored* from, i64 left) {
    QuantizedValues values;
    values.template load<Number>(from, left);
    return __builtin_bit_cast(Halves, values.template pack<Code>());
  }
  AL_DEVICE static QuantizedValues unpacked(Halves pack) {
    QuantizedValues values;
    values.template set<Code>(__builtin_bit_cast(QuantizedPack, pack));
    return values;
  }
};

// A number type for reduce_ll128() alone.
template <class Number, class Code>
struct Quantized {
  using Stored = typename Number::Stored;
  using Packs = QuantizedPacks<Number, Code>;
};

template <class Number, class CodeOfPack>
struct PackSum<Quantized<Number, CodeOfPack>> {
  using Result = QuantizedValues;

  QuantizedValues sums;

  template <class Operator>
  AL_DEVICE void add(Halves pack, bool first) {
    const auto held = __builtin_bit_cast(QuantizedPack, pack);
    first ? sums.template set<CodeOfPack>(held) : sums.template add<CodeOfPack>(held);
  }
  template <bool kMean, class Part>
  AL_DEVICE Result result(int number, const Part&) const {
    Result made = sums;
    if constexpr (kMean) made.multiply(1.0f / static_cast<float>(number));
    return made;
  }
  template <bool kMean, class Part>
  AL_DEVICE Halves pack(int number, const Part& part) const {
    return __builtin_bit_cast(Halves, result<kMean>(number, part).template pack<CodeOfPack>());
  }
  AL_DEVICE static Result poison(u64) { return QuantizedValues::nan(); }
};

}  // namespace altorch::kernels
