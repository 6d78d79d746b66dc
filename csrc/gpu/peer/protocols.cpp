// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/peer/protocols.h"

#include "base/shape.h"
#include "base/size_text.h"
#include "gpu/host_staged/operands.h"
#include "gpu/peer/normed_sums.h"

namespace altorch {
namespace {

constexpr const char *kReductionsOnly = "it is for reductions",
                     *kMovesOnly = "it is for vectors that are not reduced",
                     *kTakenByLl128 = "LL128 replaces it over NVLink, so that it has no slots",
                     *kIn8Bits = "values in 8 bits go by LL128",
                     *kNeedsLinks = "it needs GPUs that NVLink links to each other";

bool is_vector(const Operation& operation) {
  return is_vector_collective(operation.kind) && !is_scan(operation.kind);
}
bool is_reduced(const Operation& operation) { return operation.reduces() && !is_scan(operation.kind); }
bool is_moved(const Operation& operation) { return is_vector(operation) && !operation.reduces(); }
bool is_in_8_bits(const Operation& operation) { return operation.reduces() && is_quantized(operation.op); }
std::int64_t longest_bytes(const Operation& operation) {
  return bytes_of(operation, longest_block(operation));
}
bool may_be_two_shot(const Operation& operation, const PeerLayout& layout) {
  return !scatters(operation.kind) && layout.reduces_two_shot();
}

std::string by_ll(const Operation&, const PeerLayout&) {
  return "one kernel per rank, by LL: it writes this rank's part into the others' memory, with a number "
         "beside every four bytes, and takes theirs when they are there\n";
}
std::string by_ll128(const Operation& operation, const PeerLayout&) {
  const std::string takes = operation.reduces() ? "reduces" : "takes";
  return "one kernel per rank, by LL128: it writes this rank's part into the others' memory, with a number "
         "in every 128 bytes, and " +
         takes + " theirs when they are there\n";
}
std::string up_to(const PeerLayout& layout) {
  return " of up to " + size_text(static_cast<std::int64_t>(layout.part_bytes)) +
         " for each rank and block of threads: ";
}
std::string in_chunks(const Operation& operation, const PeerLayout& layout) {
  return "one kernel per rank, in chunks" + up_to(layout) +
         "half of its blocks write into the others' memory, with a flag behind each chunk, the other half " +
         (operation.reduces() ? "reduce" : "take") + " what has come\n";
}

constexpr PeerProtocol kRows[] = {
    {.id = PeerProtocolId::kNorm,
     .name = "norm",
     .unsupported_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       return NormedSums::fits(operation, layout.norm_shape())
                  ? nullptr
                  : "it is for a sum of a few rows that RMSNorm follows";
     },
     .steps = [](const Operation&, const PeerLayout&) -> std::string {
       return "one kernel per rank, by LL, that normalises the rows it has summed\n";
     }},
    {.id = PeerProtocolId::kLl,
     .name = "ll",
     .unsupported_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       if (is_in_8_bits(operation)) return kIn8Bits;
       return LlExchanges::fits(operation, layout.ranks, layout.ll_bytes)
                  ? nullptr
                  : "it is for vectors and even blocks that its slots hold";
     },
     .steps = by_ll},
    {.id = PeerProtocolId::kLl128,
     .name = "ll128",
     .unsupported_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       if (!is_vector(operation)) return "it is for vectors and blocks of known sizes";
       if (is_in_8_bits(operation) && layout.ranks > 2)
         return "sums in 8 bits are packed once more among more than two ranks, at every size";
       return layout.reduces_by_ll128() ? nullptr : kNeedsLinks;
     },
     .passed_over_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       const std::int64_t bytes = longest_bytes(operation);
       if (!operation.reduces())
         return layout.moves_by_ll128(bytes) ? nullptr : "the chunked exchange is faster at this size";
       return !scatters(operation.kind) && layout.is_two_shot(bytes) ? "two-shot is faster at this size"
                                                                     : nullptr;
     },
     .steps = by_ll128},
    {.id = PeerProtocolId::kLl128TwoShot,
     .name = "ll128_two_shot",
     .unsupported_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       if (!is_reduced(operation) || scatters(operation.kind)) return "it is for all_reduce and reduce";
       if (!layout.reduces_by_ll128()) return kNeedsLinks;
       return layout.reduces_two_shot() ? nullptr
                                        : "between two ranks one-shot sends as much, and waits once";
     },
     .steps = [](const Operation& operation, const PeerLayout& layout) -> std::string {
       std::string text = by_ll128(operation, layout);
       text.pop_back();
       return text + ": a share of them, which it passes on likewise\n";
     }},
    {.id = PeerProtocolId::kTwoShot,
     .name = "two_shot",
     .unsupported_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       if (!is_reduced(operation) || scatters(operation.kind)) return "it is for all_reduce and reduce";
       if (layout.reduces_by_ll128()) return kTakenByLl128;
       return layout.reduces_two_shot() ? nullptr
                                        : "between two ranks one-shot sends as much, and waits once";
     },
     .steps = [](const Operation&, const PeerLayout& layout) -> std::string {
       return "one kernel per rank, in rounds" + up_to(layout) +
              "it writes into the others' memory, raises a flag, reduces its share of all ranks', "
              "and passes that on\n";
     }},
    {.id = PeerProtocolId::kOneShot,
     .name = "one_shot",
     .unsupported_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       if (!is_reduced(operation)) return kReductionsOnly;
       return layout.reduces_by_ll128() ? kTakenByLl128 : nullptr;
     },
     .passed_over_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       return may_be_two_shot(operation, layout) ? "two-shot is faster among so many ranks" : nullptr;
     },
     .steps = in_chunks},
    {.id = PeerProtocolId::kExchange,
     .name = "exchange",
     .unsupported_reason = [](const Operation& operation, const PeerLayout& layout) -> const char* {
       if (!is_moved(operation)) return kMovesOnly;
       return layout.moves_by_ll128() ? kTakenByLl128 : nullptr;
     },
     .steps = in_chunks},
    {.id = PeerProtocolId::kPairs,
     .name = "pairs",
     .unsupported_reason = [](const Operation& operation, const PeerLayout&) -> const char* {
       return operation.is_message() || is_vector_collective(operation.kind)
                  ? "it is for blocks of which a pair of ranks alone knows the sizes"
                  : nullptr;
     },
     .steps = [](const Operation& operation, const PeerLayout& layout) -> std::string {
       const std::int64_t bytes = longest_bytes(operation);
       if (exchanges(operation.kind) && bytes <= static_cast<std::int64_t>(layout.pair_bytes))
         return by_ll(operation, layout);
       return layout.moves_by_ll128(bytes) ? by_ll128(operation, layout) : in_chunks(operation, layout);
     }},
    {.id = PeerProtocolId::kMessages,
     .name = "messages",
     .unsupported_reason = [](const Operation& operation, const PeerLayout&) -> const char* {
       return operation.is_message() ? nullptr : "it is for messages";
     },
     .steps = in_chunks},
};

}  // namespace

std::span<const PeerProtocol> peer_protocols() { return kRows; }

}  // namespace altorch
