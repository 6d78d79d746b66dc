// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/printer.h"

#include <iomanip>
#include <sstream>

namespace altorch {
namespace {

std::ostream& operator<<(std::ostream& out, const Slice& slice) {
  constexpr const char* names[] = {"input", "output", "scratch"};
  return out << names[static_cast<int>(slice.region)] << '[' << slice.offset << ':'
             << slice.offset + slice.count << ']';
}

std::ostream& operator<<(std::ostream& out, const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
      return out << "send " << step.a << " to " << step.peer;
    case StepKind::kReceive:
      return out << "receive " << step.a << " from " << step.peer;
    case StepKind::kCopy:
      return out << step.c << " = " << step.a;
    case StepKind::kReduce:
      return out << step.c << " = " << step.a << " (op) " << step.b;
    case StepKind::kCombine:
      break;
  }
  return out << step.c << " = " << parts_of(step) << " parts: " << step.a << ", " << step.b << " at place "
             << step.peer;
}

bool has_messages(const Round& round) { return round.messages_begin != round.messages_end; }

class Description {
 public:
  Description(const Algorithm& algorithm, const Problem& problem, int longest)
      : schedule_(algorithm.build(problem)), longest_(longest) {
    head(algorithm, problem);
    rounds();
  }
  std::string text() const { return out_.str(); }

 private:
  void head(const Algorithm& algorithm, const Problem& problem) {
    out_ << name_of(algorithm.kind) << ' ' << algorithm.name << ", rank " << problem.rank << " of "
         << problem.size;
    const bool is_uneven = !problem.input_counts.empty() || !problem.output_counts.empty();
    if (is_uneven) {
      out_ << ", uneven blocks";
    } else if (algorithm.kind != OpKind::kBarrier) {
      out_ << ", " << problem.count << " elements";
    }
    if (algorithm.pipelined && problem.segment_count > 0) {
      out_ << " in segments of " << problem.segment_count;
    }
    std::int64_t sent = 0;
    for (const Step& step : schedule_.steps) {
      if (step.kind == StepKind::kSend) sent += step.a.count;
    }
    for (const Round& round : schedule_.rounds) message_rounds_ += has_messages(round) ? 1 : 0;
    out_ << '\n'
         << message_rounds_ << (message_rounds_ == 1 ? " round" : " rounds") << " of messages, " << sent
         << " elements sent, " << schedule_.scratch_count << " elements of scratch\n";
  }

  // A round of local steps alone continues the round before it.
  void rounds() {
    int number = 0;
    for (const Round& round : schedule_.rounds) {
      if (has_messages(round) && number == longest_) {
        const int left = message_rounds_ - number;
        out_ << "... and " << left << " more " << (left == 1 ? "round\n" : "rounds\n");
        return;
      }
      if (has_messages(round))
        lines("round " + std::to_string(++number), round.messages_begin, round.messages_end);
      lines(has_messages(round) ? "meanwhile" : "then", round.locals_begin, round.locals_end);
    }
  }

  void lines(std::string label, std::uint32_t begin, std::uint32_t end) {
    for (auto i = begin; i < end; ++i) {
      out_ << std::left << std::setw(10) << label << "  " << schedule_.steps[i] << '\n';
      label.clear();
    }
  }

  const Schedule schedule_;
  const int longest_;
  int message_rounds_ = 0;
  std::ostringstream out_;
};

}  // namespace

std::string describe(const Algorithm& algorithm, const Problem& problem, int longest) {
  return Description(algorithm, problem, longest).text();
}

}  // namespace altorch
