// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/simulation.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <cstdio>
#include <fstream>

#include "backend/c10d/errors.h"
#include "base/error.h"
#include "explain/explain.h"
#include "simulate/goal.h"
#include "simulate/simulate.h"
#include "simulate/start_up.h"

namespace altorch {
namespace {

namespace py = pybind11;
using backend::guarded;

using Values = std::map<std::string, double>;

// `values`: times in seconds, by the names of Network's fields.
Network network_of(int nodes, int per_node, const Values& values) {
  Network network{.nodes = nodes, .per_node = per_node};
  const std::map<std::string, double*> fields = {
      {"alpha", &network.alpha},
      {"beta", &network.beta},
      {"rank_beta", &network.rank_beta},
      {"on_node_alpha", &network.on_node_alpha},
      {"on_node_beta", &network.on_node_beta},
      {"gamma", &network.gamma},
      {"call", &network.call},
      {"store_request", &network.store_request},
  };
  for (const auto& [name, value] : values) {
    const auto found = fields.find(name);
    if (found == fields.end())
      throw Error(ErrorKind::kInvalidArgument, "unknown network parameter '" + name + "'");
    *found->second = value;
  }
  network.check();
  return network;
}

Operation call_named(const std::string& operation, const std::string& dtype, std::int64_t bytes) {
  Operation call;
  call.kind = kind_named(operation);
  call.dtype = dtype_named(dtype);
  if (bytes < 0)
    throw Error(ErrorKind::kInvalidArgument, "the size is negative: " + std::to_string(bytes) + " bytes");
  call.count = bytes / static_cast<std::int64_t>(size_of(call.dtype));
  return call;
}

py::dict as_dict(const Simulated& result) {
  py::dict entry;
  entry["route"] = result.route;
  entry["seconds"] = result.seconds;
  entry["lower_bound_seconds"] = result.lower_bound;
  py::list stages;
  for (const SimulatedStage& each : result.stages) {
    py::dict stage;
    stage["text"] = each.text;
    stage["seconds"] = each.seconds;
    stage["messages"] = each.messages;
    stage["source"] = each.source;
    stage["latency_seconds"] = each.latency;
    stage["transfer_seconds"] = each.transfer;
    stage["reduction_seconds"] = each.reduction;
    stages.append(stage);
  }
  entry["stages"] = stages;
  return entry;
}

py::dict simulate_named(const std::string& operation, const std::string& dtype, std::int64_t bytes, int nodes,
                        int per_node, const Values& network, const std::function<void(double)>& progress) {
  return as_dict(guarded([&] {
    const py::gil_scoped_release unlocked;
    return simulate(call_named(operation, dtype, bytes), network_of(nodes, per_node, network), progress);
  }));
}

void write_goal_named(const std::string& path, const std::string& operation, const std::string& dtype,
                      std::int64_t bytes, int nodes, int per_node, const Values& network) {
  guarded([&] {
    const std::string unfinished = path + ".unfinished";  // `path` stays as it is after an error
    std::ofstream file(unfinished);
    try {
      write_goal(file, call_named(operation, dtype, bytes), network_of(nodes, per_node, network));
      file.close();
      if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0)
        throw Error(ErrorKind::kInvalidArgument, "the GOAL program could not be written to " + path);
    } catch (...) {
      std::remove(unfinished.c_str());
      throw;
    }
  });
}

py::dict start_up(int nodes, int per_node, const Values& network) {
  const StartUp found = guarded([&] { return simulated_start_up(network_of(nodes, per_node, network)); });
  py::dict entry;
  entry["requests"] = found.requests;
  entry["bytes"] = found.bytes;
  entry["seconds"] = found.seconds;
  return entry;
}

}  // namespace

void bind_simulation(py::module_& module) {
  module.def("simulate", &simulate_named, py::arg("operation"), py::arg("dtype"), py::arg("bytes"),
             py::kw_only(), py::arg("nodes"), py::arg("per_node"), py::arg("network"),
             py::arg("progress") = nullptr);
  module.def("write_goal", &write_goal_named, py::arg("path"), py::arg("operation"), py::arg("dtype"),
             py::arg("bytes"), py::kw_only(), py::arg("nodes"), py::arg("per_node"), py::arg("network"));
  module.def("simulated_start_up", &start_up, py::kw_only(), py::arg("nodes"), py::arg("per_node"),
             py::arg("network"));
}

}  // namespace altorch
