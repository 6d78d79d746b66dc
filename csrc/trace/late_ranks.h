// SPDX-License-Identifier: BSD-3-Clause
// The current calls of missing ranks, as their processes report them: the end of a timeout error.
//
// Ranks of this node are asked at their trace sockets (ask_process.h), ranks of other nodes through
// a process there (far_ranks.h). Each of them then also has its flight record written. So the files
// of a job include those of the missing ranks (TORCH_FR_DUMP_ON_TIMEOUT).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "trace/job_watch.h"
#include "trace/report.h"

namespace altorch {

// The answer to kLateIn: the current call of this process in that group.
std::string late_answer(const ProcessReport& report, std::string_view key);

// "; rank 2: in no call; last was barrier #2, done 3.1 s ago; its program is at train.py:88 in
// load", or nothing. `late`: ranks of the group `key`; a few of them are asked. `global_ranks`: all
// ranks of the group, as the job numbers them. Takes half a second at most, or one and a quarter if
// some are on other nodes.
std::string text_of_late_ranks(const JobWatch& watch, std::string_view key, std::span<const int> late,
                               std::span<const int> global_ranks);

}  // namespace altorch
