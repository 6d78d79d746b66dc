// SPDX-License-Identifier: BSD-3-Clause
// What ranks that are missed are at, asked of their processes: the last words of an error about a deadline.
//
// Those on this node are asked at their trace sockets (ask_process.h), those of other nodes by somebody there (far_ranks.h); each
// then has what is recorded of its calls written too, so that who reads the files of a job has those of the late ranks
// (TORCH_FR_DUMP_ON_TIMEOUT).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "observe/job_watch.h"
#include "observe/trace/report.h"

namespace altorch {

// The answer to kLateIn: what this process is at in that group.
std::string late_answer(const ProcessReport& report, std::string_view key);

// "; rank 2: in no call; last was barrier #2, done 3.1 s ago; its program is at train.py:88 in load", or nothing. `late`: of the
// group `key`, whose ranks are `global_ranks` in the job; a few of them are asked. Takes half a second at the most, where some
// are on other nodes one and a quarter.
std::string words_of_late_ranks(const JobWatch& watch, std::string_view key, std::span<const int> late,
                                std::span<const int> global_ranks);

}  // namespace altorch
