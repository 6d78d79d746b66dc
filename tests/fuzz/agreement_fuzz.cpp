// SPDX-License-Identifier: BSD-3-Clause
// What ranks write down of their calls on CUDA tensors in memory that they share, and why one
// aborted.
#include "fuzz/memory.h"
#include "fuzz/target.h"
#include "gpu/agreement.h"

namespace altorch {
namespace {

// Where Agreement has what rank 1 of 2 called: four words of it.
constexpr std::size_t kCalls = 4096 + 1024 * 32;

Operation operation_of(fuzz::Input& input, std::uint64_t sequence) {
  Operation operation;
  operation.kind = static_cast<OpKind>(input.up_to(kRoutedKindCount - 1));
  operation.dtype = static_cast<DType>(input.up_to(kDTypeCount - 1));
  operation.count = input.number<std::uint16_t>();
  operation.root = input.up_to(1);
  operation.sequence = sequence;
  return operation;
}

}  // namespace

FUZZ_TARGET(agreement, 1000) {
  const std::size_t bytes = Agreement::bytes(2);
  const auto memory = fuzz::hostile_memory(bytes, input.number<std::uint8_t>());
  Agreement agreement(memory, 0, {0, 1});
  for (std::uint64_t number = 1; number < 16 && !input.empty(); ++number) {
    for (int pokes = input.up_to(3); pokes > 1; --pokes) fuzz::poke(memory.get(), bytes, input);
    std::uint64_t theirs[4] = {number, number, input.number<std::uint64_t>(), input.number<std::uint8_t>()};
    std::memcpy(memory.get() + kCalls + number * sizeof theirs, theirs, sizeof theirs);
    agreement.check(operation_of(input, number));
    agreement.aborted();
  }
}

}  // namespace altorch
