// SPDX-License-Identifier: BSD-3-Clause
// Numbers in the environment: altorch's own settings, and what launchers set.
#include "base/env.h"
#include "base/number.h"
#include "bootstrap/launcher.h"
#include "fuzz/target.h"
#include "fuzz/variable.h"
#include "gpu/host_staged/pinned_bytes.h"
#include "platform/cores.h"
#include "transports/shm/collectives.h"

namespace altorch {
namespace {

using fuzz::Variable;

// The code that reads a number makes an integer of it.
void read_setting(const Setting& row, const std::string& text) {
  const Variable variable(row.name, text);
  const bool is_wrong = wrong_setting().has_value();
  if (std::string_view(row.type) != "seconds" && std::string_view(row.type) != "bytes") return;
  const auto number = static_cast<std::int64_t>(1000 * numeric_setting(row.name));
  fuzz::require(number >= 0 && !is_wrong, "a number that is taken is right");
  ShmCollectives::limit();
  board_layout(256);
}

}  // namespace

FUZZ_TARGET(settings, 2000) {
  const int kind = input.up_to(31);
  const std::string text = input.piece().value_or("");
  const std::string lists[] = {text};
  count_cores(lists);
  if (static_cast<std::size_t>(kind) < settings().size())
    return read_setting(settings()[static_cast<std::size_t>(kind)], text);
  const Variable rank("OMPI_COMM_WORLD_RANK", text), size("OMPI_COMM_WORLD_SIZE", text);
  const Launcher found = detect_launcher();
  fuzz::require(found.kind != LauncherKind::kOpenMpi || found.size == to_number<int>(text),
                "a launcher's numbers are read as they are");
}

}  // namespace altorch
