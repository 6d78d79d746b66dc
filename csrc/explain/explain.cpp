// SPDX-License-Identifier: BSD-3-Clause
#include "explain/explain.h"

#include "base/error.h"
#include "explain/parts.h"
#include "reduction/exact_mode.h"

namespace altorch {

void refuse(const std::string& why) { throw Error(ErrorKind::kInvalidArgument, why); }

void add_protocol(Explanation& said, const Route& taken, const ExplainedProtocol& found,
                  std::string_view asked) {
  said.rounds = found.steps;
  said.protocol = found.name;
  for (const auto& [name, why] : found.others)
    said.others.push_back(
        {std::string(taken.name) + "/" + name, name == asked ? "a rule names it, but " + why : why});
}

namespace {

template <typename Enum>
Enum named(const std::string& name, int count, const char* what) {
  for (int each = 0; each < count; ++each) {
    if (name == name_of(static_cast<Enum>(each))) return static_cast<Enum>(each);
  }
  refuse("'" + name + "' is no " + what);
}

}  // namespace

OpKind kind_named(const std::string& name) {
  return named<OpKind>(name, kRoutedKindCount, "operation; `altorch algorithms` lists them");
}
DType dtype_named(const std::string& name) {
  return named<DType>(name, kDTypeCount, "element type; try float32");
}
ReduceOp reduce_op_named(const std::string& name) {
  return named<ReduceOp>(name, kReduceOpCount, "reduction; try SUM");
}

Explanation explain(const Question& question) {
  Operation asked;
  asked.device = question.on_gpus ? 0 : kHostDevice;
  if (question.operation == name_of(OpKind::kOneSided)) {
    asked.kind = OpKind::kOneSided;
    asked.dtype = dtype_named(question.dtype);
    return explain_window(question, asked);
  }
  asked.kind = kind_named(question.operation);
  asked.dtype = dtype_named(question.dtype);
  asked.count = question.bytes / static_cast<std::int64_t>(size_of(asked.dtype));
  if (asked.reduces()) asked.op = op_for_call(asked.kind, asked.op, asked.dtype, exact_setting());
  if (question.on_gpus) return explain_on_gpus(question, asked);
  return asked.is_message() ? explain_message(question) : explain_on_host(question, asked);
}

}  // namespace altorch
