// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/host_bytes.h"

#include <memory>

namespace py = pybind11;

namespace altorch {
namespace {

// A tensor of bytes as a Python buffer: torch has none, except through NumPy.
struct HostBytes {
  at::Tensor bytes;
};

std::int64_t bytes_of(const py::buffer_info& info) {
  py::ssize_t expected = info.itemsize;
  for (auto axis = static_cast<std::size_t>(info.ndim); axis-- > 0;) {
    if (info.shape[axis] > 1 && info.strides[axis] != expected)
      throw py::value_error("the buffer is not contiguous");
    expected *= info.shape[axis];
  }
  return expected;
}

}  // namespace

at::Tensor tensor_over(const py::buffer& buffer) {
  auto info = std::make_shared<py::buffer_info>(buffer.request());
  const std::int64_t bytes = bytes_of(*info);
  if (bytes == 0) return at::empty({0}, at::kByte);
  void* const memory = info->ptr;
  const auto release = [info = std::move(info)](void*) mutable {
    if (!Py_IsInitialized()) {
      new std::shared_ptr(std::move(info));  // Python is gone: the buffer stays
      return;
    }
    const py::gil_scoped_acquire locked;
    info.reset();
  };
  return at::from_blob(memory, {bytes}, release, at::kByte);
}

void bind_host_bytes(py::module_& module) {
  py::class_<HostBytes>(module, "HostBytes", py::buffer_protocol(),
                        "Bytes of the host, not initialised or those of a tensor, as a Python buffer.")
      .def(py::init([](std::int64_t size) { return HostBytes{at::empty({size}, at::kByte)}; }),
           py::arg("size"))
      .def(py::init([](const at::Tensor& bytes) {
             if (bytes.scalar_type() != at::kByte || !bytes.is_cpu() || !bytes.is_contiguous())
               throw py::value_error("a contiguous tensor of bytes of the host is expected");
             return HostBytes{bytes};
           }),
           py::arg("bytes"))
      .def_buffer([](HostBytes& self) {
        return py::buffer_info(static_cast<std::uint8_t*>(self.bytes.data_ptr()),
                               static_cast<py::ssize_t>(self.bytes.numel()));
      });
  module.def("tensor_over", &tensor_over, py::arg("buffer"),
             "A tensor of bytes over the memory of a contiguous buffer, which it keeps.");
}

}  // namespace altorch
