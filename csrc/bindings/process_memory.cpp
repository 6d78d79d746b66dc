// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/process_memory.h"

#include <pybind11/stl.h>

#include <cerrno>
#include <cstring>

#include "platform/single_copy.h"

namespace py = pybind11;

namespace altorch {
namespace {

using shm::Process;
using Released = py::call_guard<py::gil_scoped_release>;

// An empty text: done.
std::string outcome(bool done) { return done ? "" : std::strerror(errno); }

}  // namespace

void add_process_memory(py::module_& module) {
  py::class_<Process>(module, "Process", "A process of this node whose memory may be copied from and to.")
      .def(py::init([](long pid, std::uint64_t address, std::uint64_t number) {
             return Process{pid, address, number};
           }),
           py::arg("pid"), py::arg("address"), py::arg("number"))
      .def_static("own", &Process::own)
      .def_readonly("pid", &Process::pid)
      .def_readonly("address", &Process::address, "Of a number in its memory.")
      .def_readonly("number", &Process::number, "Which no other process has there.")
      .def("unsupported_reason", &Process::unsupported_reason, Released(),
           "Why this process cannot copy from it, or None.")
      .def(
          "read",
          [](const Process& self, std::uint64_t from, std::uintptr_t to, std::size_t bytes) {
            return outcome(self.read(from, reinterpret_cast<void*>(to), bytes));
          },
          Released(), py::arg("source"), py::arg("target"), py::arg("bytes"),
          "Copies from an address there to one here; what went wrong, or an empty text.")
      .def(
          "write",
          [](const Process& self, std::uint64_t to, std::uintptr_t from, std::size_t bytes) {
            return outcome(self.write(to, reinterpret_cast<const void*>(from), bytes));
          },
          Released(), py::arg("target"), py::arg("source"), py::arg("bytes"),
          "Copies from an address here to one there; what went wrong, or an empty text.");
}

}  // namespace altorch
