// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/window.h"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend/c10d/errors.h"
#include "backend/c10d/one_sided.h"
#include "base/longest_timeout.h"
#include "select/table.h"
#include "windows/row.h"

namespace py = pybind11;

namespace altorch {
namespace {

using backend::AlWindow;
using Released = py::call_guard<py::gil_scoped_release>;

double seconds_of(const py::object& said) {
  if (py::isinstance<py::float_>(said) || py::isinstance<py::int_>(said)) return said.cast<double>();
  return said.cast<std::chrono::duration<double>>().count();
}

// `options`: torch's, or nothing; `timeout`: seconds, a timedelta, or nothing.
AlWindow::Timeout timeout_from(const py::object& options, const py::object& timeout) {
  double seconds = -1;  // torch's word for unset
  if (!timeout.is_none()) {
    seconds = seconds_of(timeout);
    if (!(seconds >= 0))
      throw py::value_error("altorch: the timeout is " + std::string(py::str(timeout)) + " s");
  } else if (!options.is_none()) {
    seconds = seconds_of(options.attr("timeout"));
  }
  if (!(seconds >= 0)) return std::nullopt;
  return timeout_of_seconds(seconds);
}

// "SUM", "sum" or torch.distributed.ReduceOp.SUM.
std::string operator_name(const py::object& op) {
  std::string name = py::str(op);
  name = name.substr(name.find_last_of('.') + 1);
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

#ifdef C10D_BACKEND_HAS_WINDOW
using WindowClass = py::class_<AlWindow, c10::intrusive_ptr<AlWindow>, c10d::Window>;
#else
using WindowClass = py::class_<AlWindow, c10::intrusive_ptr<AlWindow>>;
#endif

}  // namespace

void bind_window(py::module_& module) {
  WindowClass(
      module, "Window",
      "One-sided access to tensors that the ranks of a group have registered. Offsets and strides are in "
      "elements of the target's tensor, read as one row.")
      .def(
          "tensor_register",
          [](AlWindow& self, const at::Tensor& tensor, bool owning) { self.register_tensor(tensor, owning); },
          Released(), py::arg("tensor"), py::arg("owning") = true,
          "Collective: gives the window this rank's tensor, contiguous; on a GPU one of altorch.empty(). "
          "owning: it is kept alive.")
      .def(
          "tensor_deregister", [](AlWindow& self) { self.deregister_tensor(); }, Released(),
          "Collective: when it returns, no rank accesses the tensors any more.")
      .def(
          "put",
          [](AlWindow& self, const at::Tensor& tensor, std::int64_t rank, std::int64_t offset, bool async,
             const py::object& options, std::optional<std::int64_t> stride, const py::object& timeout) {
            const auto limit = timeout_from(options, timeout);
            const py::gil_scoped_release released;
            return self.put(tensor, {rank, offset, stride}, async, limit);
          },
          py::arg("tensor"), py::arg("dst_rank"), py::arg("target_offset_nelems") = 0,
          py::arg("async_op") = false, py::arg("opts") = py::none(), py::kw_only(),
          py::arg("target_stride") = py::none(), py::arg("timeout") = py::none(),
          "Writes tensor to the window of dst_rank. target_stride: row i of tensor (its first dimension) "
          "goes to "
          "target_offset_nelems + i * target_stride.")
      .def(
          "put_signal",
          [](AlWindow& self, const at::Tensor& tensor, std::int64_t rank, std::int64_t offset, bool async,
             int slot, std::optional<std::int64_t> stride, const py::object& timeout) {
            const auto limit = timeout_from(py::none(), timeout);
            const py::gil_scoped_release released;
            return self.put(tensor, {rank, offset, stride}, async, limit, slot);
          },
          py::arg("tensor"), py::arg("dst_rank"), py::arg("target_offset_nelems") = 0,
          py::arg("async_op") = false, py::kw_only(), py::arg("slot") = 0,
          py::arg("target_stride") = py::none(), py::arg("timeout") = py::none(),
          "put() and then signal(), in one call.")
      .def(
          "get",
          [](AlWindow& self, const at::Tensor& tensor, std::int64_t rank, std::int64_t offset, bool async,
             std::optional<std::int64_t> stride, const py::object& timeout) {
            const auto limit = timeout_from(py::none(), timeout);
            const py::gil_scoped_release released;
            return self.get(tensor, {rank, offset, stride}, async, limit);
          },
          py::arg("tensor"), py::arg("src_rank"), py::arg("source_offset_nelems") = 0,
          py::arg("async_op") = false, py::kw_only(), py::arg("source_stride") = py::none(),
          py::arg("timeout") = py::none(), "Reads the window of src_rank into tensor.")
      .def(
          "accumulate",
          [](AlWindow& self, const at::Tensor& tensor, std::int64_t rank, std::int64_t offset,
             const py::object& op, bool async, std::optional<std::int64_t> stride,
             const py::object& timeout) {
            const auto limit = timeout_from(py::none(), timeout);
            const std::string name = operator_name(op);
            const py::gil_scoped_release released;
            return self.accumulate(tensor, {rank, offset, stride}, name, async, limit);
          },
          py::arg("tensor"), py::arg("dst_rank"), py::arg("target_offset_nelems") = 0, py::arg("op") = "SUM",
          py::arg("async_op") = false, py::kw_only(), py::arg("target_stride") = py::none(),
          py::arg("timeout") = py::none(),
          "Reduces tensor into the window of dst_rank; atomic with fetch_add, compare_swap and other "
          "accumulates.")
      .def(
          "fetch_add",
          [](AlWindow& self, std::int64_t rank, std::int64_t offset, std::int64_t value,
             const py::object& timeout) {
            const auto limit = timeout_from(py::none(), timeout);
            const py::gil_scoped_release released;
            return self.fetch_add(rank, offset, value, limit);
          },
          py::arg("rank"), py::arg("offset"), py::arg("value"), py::kw_only(),
          py::arg("timeout") = py::none(), "Adds value to an element, int32 or int64; what was there before.")
      .def(
          "compare_swap",
          [](AlWindow& self, std::int64_t rank, std::int64_t offset, std::int64_t expected,
             std::int64_t value, const py::object& timeout) {
            const auto limit = timeout_from(py::none(), timeout);
            const py::gil_scoped_release released;
            return self.compare_swap(rank, offset, expected, value, limit);
          },
          py::arg("rank"), py::arg("offset"), py::arg("expected"), py::arg("value"), py::kw_only(),
          py::arg("timeout") = py::none(),
          "Stores value where expected is, in an element of int32 or int64; what was there before.")
      .def(
          "signal",
          [](AlWindow& self, std::int64_t rank, bool async, const py::object& options, int slot,
             const py::object& timeout) {
            const auto limit = timeout_from(options, timeout);
            const py::gil_scoped_release released;
            return self.signal_rank(rank, slot, async, limit);
          },
          py::arg("peer_rank"), py::arg("async_op") = false, py::arg("opts") = py::none(), py::kw_only(),
          py::arg("slot") = 0, py::arg("timeout") = py::none(),
          "Tells peer_rank that everything that this rank asked of its window before has taken effect.")
      .def(
          "wait_signal",
          [](AlWindow& self, std::int64_t rank, bool async, const py::object& options, int slot,
             const py::object& timeout) {
            const auto limit = timeout_from(options, timeout);
            const py::gil_scoped_release released;
            return self.wait_for_signal(rank, slot, async, limit);
          },
          py::arg("peer_rank"), py::arg("async_op") = false, py::arg("opts") = py::none(), py::kw_only(),
          py::arg("slot") = 0, py::arg("timeout") = py::none(),
          "Waits for one signal() of peer_rank in that slot; each is waited for once.")
      .def("flush", &AlWindow::flush, Released(), py::arg("rank") = py::none(),
           "Until everything that this rank began at `rank` (default: all) has taken effect; raises what has "
           "failed of it since the last time.")
      .def("fence", &AlWindow::fence, Released(), "Collective: flush(), and then a barrier of this window.")
      .def("map_remote_tensor", &AlWindow::map, Released(), py::arg("rank"),
           "What rank has registered, as a row of elements of its own memory.")
      .def_property_readonly("route", &AlWindow::route,
                             "What carries it: 'shm', 'mpi' or 'messages', 'peer', 'host_staged', "
                             "'host_relay', 'nccl' or 'nvshmem' on GPUs.");
  module.def(
      "window_routes",
      [] {
        py::list rows;
        for (const On on : {On::kHostWindow, On::kGpuWindow}) {
          const bool on_gpu = on == On::kGpuWindow;
          for (const Row& row : rows_on(on)) {
            const auto unsupported_reason =
                backend::guarded([&] { return window_row_named(row.carrier, on_gpu).unsupported_reason(2); });
            py::dict entry;
            entry["name"] = row.carrier;
            entry["device"] = on_gpu ? "cuda" : "cpu";
            entry["viable"] = !unsupported_reason;
            entry["reason"] = unsupported_reason.value_or(row.reason);
            rows.append(entry);
          }
        }
        return rows;
      },
      "What may carry windows here, best first.");
  module.def(
      "empty_shareable",
      [](const std::vector<std::int64_t>& sizes, const py::object& dtype, const c10::Device& device) {
        return backend::empty_shareable(sizes, reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type, device);
      },
      py::arg("sizes"), py::arg("dtype"), py::arg("device"),
      "A tensor that the other ranks of this node can map.");
}

}  // namespace altorch
