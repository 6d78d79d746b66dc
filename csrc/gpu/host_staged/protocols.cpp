// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/protocols.h"

#include <algorithm>

#include "base/shape.h"
#include "base/size_text.h"
#include "gpu/host_staged/host_staged.h"
#include "gpu/host_staged/operands.h"
#include "gpu/host_staged/pieces.h"

namespace altorch {
namespace {

constexpr const char* kSharedGpu = "ranks share a GPU, on which no kernel can wait for another";

constexpr const char* kByLl =
    "one kernel per rank, by LL: it sends the others their parts, and takes theirs when they are there\n";

std::string pieces_text(std::int64_t pieces, std::int64_t bytes) {
  return std::to_string(pieces) + " piece(s) of up to " + size_text(bytes);
}

std::string by_messages(const Operation& operation, const StagedMemory& memory) {
  const std::size_t most = memory.layout.message_bytes;
  const auto bytes = static_cast<std::size_t>(bytes_of(operation, operation.count));
  return pieces_text(static_cast<std::int64_t>(pieces_of(bytes, most)), static_cast<std::int64_t>(most)) +
         " for each pair of ranks: the sender's GPU copies out, the receiver's copies in\n";
}

constexpr StagedProtocol kRows[] = {
    {.id = StagedProtocolId::kLl,
     .name = "ll",
     .unsupported_reason = [](const Operation& operation, const StagedMemory& memory) -> const char* {
       if (!memory.co_resident) return kSharedGpu;
       return LlExchanges::fits(operation, memory.layout.ranks, memory.layout.ll_bytes)
                  ? nullptr
                  : "it is for vectors and even blocks that its slots hold";
     },
     .steps = [](const Operation&, const StagedMemory&) -> std::string { return kByLl; }},
    {.id = StagedProtocolId::kPieces,
     .name = "pieces",
     .unsupported_reason = [](const Operation& operation, const StagedMemory&) -> const char* {
       return is_vector_collective(operation.kind) ? nullptr : "it is for vectors and blocks of known sizes";
     },
     .steps = [](const Operation& operation, const StagedMemory& memory) -> std::string {
       const int ranks = memory.layout.ranks;
       const PieceCutter cutter(operation, 0, ranks,
                                HostStaged::step_of(operation, ranks, memory.layout.slot_bytes));
       std::string text =
           pieces_text(cutter.pieces(), bytes_of(operation, std::min(cutter.step(), operation.count))) +
           ": each rank copies to pinned memory what others need; ";
       if (operation.reduces()) text += "reduces its share of all ranks'; ";
       return text + "copies in what it lacks; pieces overlap\n";
     }},
    {.id = StagedProtocolId::kPairs,
     .name = "pairs",
     .unsupported_reason = [](const Operation& operation, const StagedMemory& memory) -> const char* {
       if (!memory.co_resident) return kSharedGpu;
       return exchanges(operation.kind) ? nullptr : "it is for all_to_all";
     },
     .steps = [](const Operation& operation, const StagedMemory& memory) -> std::string {
       if (!LlExchanges::goes_in_pairs(operation, memory.layout.pair_bytes()))
         return by_messages(operation, memory);
       return kByLl;
     }},
    {.id = StagedProtocolId::kMessages,
     .name = "messages",
     .unsupported_reason = [](const Operation& operation, const StagedMemory&) -> const char* {
       return is_vector_collective(operation.kind) ? "it is for messages and blocks between two ranks"
                                                   : nullptr;
     },
     .steps = by_messages},
};

}  // namespace

std::span<const StagedProtocol> staged_protocols() { return kRows; }

}  // namespace altorch
