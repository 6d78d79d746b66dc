// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/tokens.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend/c10d/errors.h"
#include "backend/cuda/token_routing.h"

namespace py = pybind11;

namespace altorch {

using backend::guarded;
using backend::TokenRouting;
using OptionalTensor = std::optional<at::Tensor>;

void bind_tokens(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<TokenRouting>(module, "TokenRouting", "Where the tokens of all ranks go on this rank.")
      .def(py::init([](const at::Tensor& gathered, int ranks, int most, int columns, int first, int local,
                       int experts, int capacity, bool flat) {
             TokenTable table;
             table.ranks = ranks;
             table.max_tokens = most;
             table.columns = columns;
             table.rows_per_token = flat ? 1 : columns;
             table.first = first;
             table.local = local;
             table.experts = experts;
             table.capacity = capacity;
             table.flat = flat;
             return guarded([&] { return std::make_unique<TokenRouting>(gathered, table); });
           }),
           Released(), py::arg("gathered"), py::arg("ranks"), py::arg("most"), py::arg("columns"),
           py::arg("first"), py::arg("local"), py::arg("experts"), py::arg("capacity"), py::arg("flat"))
      .def_property_readonly("summary", &TokenRouting::summary)
      .def(
          "dispatch",
          [](const TokenRouting& self, const backend::ProcessGroup& group, std::int64_t rows,
             std::int64_t received, const at::Tensor& tokens, const OptionalTensor& weights,
             const OptionalTensor& scales, const at::Tensor& out, const OptionalTensor& out_weights,
             const OptionalTensor& out_indices, const OptionalTensor& out_scales) {
            guarded([&] {
              self.dispatch(group, rows, received, {tokens, weights, scales},
                            {out, out_weights, out_indices, out_scales});
            });
          },
          Released(), py::arg("group"), py::arg("rows"), py::arg("received"), py::arg("tokens"),
          py::arg("weights"), py::arg("scales"), py::arg("out"), py::arg("out_weights"),
          py::arg("out_indices"), py::arg("out_scales"), "Collective: rows of all ranks to their slots.")
      .def(
          "combine",
          [](const TokenRouting& self, const backend::ProcessGroup& group, std::int64_t rows,
             std::int64_t count, const at::Tensor& expert_tokens, const OptionalTensor& out) {
            return guarded([&] { return self.combine(group, rows, count, expert_tokens, out); });
          },
          Released(), py::arg("group"), py::arg("rows"), py::arg("count"), py::arg("expert_tokens"),
          py::arg("out"), "Collective: the sum of the rows of each token of this rank.");
  module.def(
      "pack_indices",
      [](const at::Tensor& indices, const std::vector<std::int64_t>& header, std::int64_t sent,
         std::int64_t size) {
        return guarded([&] { return backend::pack_indices(indices, header, sent, size); });
      },
      Released(), py::arg("indices"), py::arg("header"), py::arg("sent"), py::arg("size"),
      "For altorch.TokenSwitch: what a rank tells all ranks about its tokens.");
  module.def(
      "token_kernels_unsupported_reason",
      [](int device) { return guarded([&] { return backend::token_kernels_unsupported_reason(device); }); },
      Released(), py::arg("device"), "Why a GPU cannot run TokenRouting, or None.");
}

}  // namespace altorch
