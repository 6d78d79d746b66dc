// The Python module altorch._C: makes backends, and answers questions about the engine. Nothing else.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backend/backend.h"
#include "backend/errors.h"
#include "backend/gloo_backend.h"
#include "backend/store.h"
#include "bootstrap/bootstrap.h"
#include "collectives/algorithm.h"
#include "common/env.h"
#include "device/kernels/names.h"
#include "device/nvrtc.h"
#include "engine/explain.h"
#include "engine/gpu_routes.h"
#include "engine/route.h"
#include "reduction/reduce.h"

namespace py = pybind11;
using namespace altorch;           // NOLINT
using namespace altorch::backend;  // NOLINT

namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

void check_settings() {
  RouteTable();  // a bad ALTORCH_ROUTE is refused before anybody waits for this rank
  for (const std::string& unknown : unknown_settings()) {
    TORCH_WARN_ONCE("altorch: the environment variable ", unknown,
                    " is none that altorch knows; `altorch info` lists them");
  }
}

c10::intrusive_ptr<c10d::Backend> wrap_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const std::string& name, const std::string& key_prefix,
                                            const std::vector<int>& job_ranks, double timeout_seconds,
                                            const c10::intrusive_ptr<AlOptions>& options, bool whole_job,
                                            GlooFactory factory) {
  return guarded([&] {
    check_settings();
    const GroupSettings settings{name, key_prefix, rank, size, job_ranks, milliseconds(timeout_seconds)};
    return create_gloo_backend(store, settings, options, whole_job, std::move(factory));
  });
}

c10::intrusive_ptr<c10d::Backend> create_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& name,
    const std::string& key_prefix, const std::vector<int>& job_ranks, double timeout_seconds,
    const c10::intrusive_ptr<AlOptions>& options, bool first_group, const std::string& mpi_library,
    const std::string& shim_directory, const std::string& job_id, const std::string& master_address) {
  return guarded([&] {
    check_settings();
    auto keys = std::make_shared<C10dStore>(store, key_prefix);
    GroupSettings settings{name, key_prefix, rank, size, job_ranks, milliseconds(timeout_seconds)};
    // A group's own: the caller may give the same to several.
    auto own = c10::make_intrusive<AlOptions>(*options);
    own->timeout = settings.timeout;
    own->group_name = name;
    std::shared_ptr<JobWatch> watch;
    if (first_group) {
      watch = watch_job(keys, rank, size, settings.timeout);
      start_job_mpi({mpi_library, shim_directory, job_id, master_address}, keys, rank, size,
                    settings.timeout);
    }
    auto communicator = join_group(settings, keys);
    return c10::static_intrusive_pointer_cast<c10d::Backend>(
        c10::make_intrusive<AlBackend>(settings, std::move(communicator), std::move(own)));
  });
}

py::list algorithm_rows() {
  py::list rows;
  for (const Algorithm& row : algorithms()) {
    py::dict entry;
    entry["op"] = name_of(row.kind);
    entry["name"] = std::string(row.name);
    entry["summary"] = std::string(row.summary);
    entry["cost_formula"] = std::string(row.cost_formula);
    entry["even_only"] = row.even_only;
    entry["pipelined"] = row.pipelined;
    rows.append(entry);
  }
  return rows;
}

py::dict as_dict(const Explanation& said) {
  py::dict entry;
  entry["route"] = said.route;
  entry["algorithm"] = said.algorithm;
  entry["reason"] = said.reason;
  entry["rounds_text"] = said.rounds;
  entry["cost_seconds"] = said.seconds;
  py::list alternatives;
  for (const auto& other : said.alternatives) {
    py::dict row;
    row["name"] = other.name;
    row["cost_seconds"] = other.seconds;
    alternatives.append(row);
  }
  entry["alternatives"] = alternatives;
  py::dict others;
  for (const auto& other : said.others) others[py::str(other.name)] = other.why_not;
  entry["routes_not_taken"] = others;
  return entry;
}

py::dict explanation(const std::string& operation, const std::string& dtype, std::int64_t bytes, int ranks,
                     int rank, const std::optional<std::string>& algorithm) {
  return as_dict(
      guarded([&] { return explain(operation, dtype, bytes, ranks, rank, algorithm.value_or("")); }));
}

py::list setting_rows() {
  py::list rows;
  for (const Setting& row : settings()) {
    py::dict entry;
    entry["name"] = row.name;
    entry["type"] = row.type;
    entry["default"] = row.default_value;
    entry["meaning"] = row.meaning;
    entry["value"] = setting(row.name);
    rows.append(entry);
  }
  return rows;
}

// Empty for a backend that is not ours.
py::list statistics(const c10::intrusive_ptr<c10d::Backend>& backend) {
  py::list rows;
  const auto* mine = dynamic_cast<const AlBackend*>(backend.get());
  if (!mine) return rows;
  for (const StatisticsRow& row : mine->statistics()) {
    py::dict entry;
    entry["operation"] = name_of(row.kind);
    entry["count"] = row.count;
    entry["bytes"] = row.bytes;
    entry["route"] = std::string(row.transport) + ":" + std::string(row.route);
    entry["seconds"] = std::chrono::duration<double>(row.time).count();
    rows.append(entry);
  }
  return rows;
}

// Under mpirun or srun, before there is any store: MPI tells rank and size, and carries the store's address.
std::pair<int, int> join_launched_job(const std::string& mpi_library, const std::string& shim_directory) {
  return guarded([&] {
    BootstrapOptions options;
    options.library = mpi_library;
    options.shim_directory = shim_directory;
    const std::shared_ptr<Mpi> mpi = start_mpi(options);
    return std::pair(mpi->rank(), mpi->size());
  });
}

std::vector<std::string> exchange_texts(const std::string& text) {
  return guarded([&] {
    const std::shared_ptr<Mpi> mpi = running_mpi();
    if (!mpi) throw Error(ErrorKind::kInternal, "exchange_texts was called before join_launched_job");
    return mpi->exchange(text);
  });
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  py::module_::import("torch._C._distributed_c10d");
  py::class_<AlOptions, c10::intrusive_ptr<AlOptions>, c10d::Backend::Options>(
      module, "Options", "What `pg_options` of a group with backend 'al' may say.")
      .def(py::init([](double timeout_seconds, bool is_high_priority_stream, std::optional<int> min_ctas,
                       std::optional<int> max_ctas, std::optional<int> cga_cluster_size,
                       std::optional<bool> split_share) {
             auto options = c10::make_intrusive<AlOptions>(milliseconds(timeout_seconds));
             options->is_high_priority_stream = is_high_priority_stream;
             const int unsaid = nccl::Config::kUndefined;
             options->nccl = {min_ctas.value_or(unsaid), max_ctas.value_or(unsaid),
                              cga_cluster_size.value_or(unsaid),
                              split_share ? static_cast<int>(*split_share) : unsaid};
             return options;
           }),
           py::arg("timeout_seconds") = 1800.0, py::kw_only(), py::arg("is_high_priority_stream") = true,
           py::arg("min_ctas") = py::none(), py::arg("max_ctas") = py::none(),
           py::arg("cga_cluster_size") = py::none(), py::arg("split_share") = py::none(),
           "is_high_priority_stream: of the group's own stream on CUDA. min_ctas, max_ctas (thread blocks), "
           "cga_cluster_size, split_share: as in ncclConfig_t; None leaves them to NCCL.")
      .def_readonly("is_high_priority_stream", &AlOptions::is_high_priority_stream)
      .def("__copy__", [](const AlOptions& self) { return c10::make_intrusive<AlOptions>(self); })
      .def("__deepcopy__",
           [](const AlOptions& self, const py::dict&) { return c10::make_intrusive<AlOptions>(self); });
  // Where a group is bound to a device (device_id), torch calls perform_nocolor_split on the ranks that a new
  // group does not have. There is nothing to do, and they must not communicate.
  py::class_<AlBackend, c10::intrusive_ptr<AlBackend>, c10d::Backend>(module, "Backend",
                                                                      "What carries a group.")
      .def_property_readonly("options", &AlBackend::getBackendOptions)  // which torch 2.11 does not bind
      .def("perform_nocolor_split", [](AlBackend&, const py::object& /*device*/) {})
      .def("comm_split_count", &AlBackend::nccl_splits,
           "How many groups were split off with a part of this group's NCCL communicator.")
      .def_property_readonly(
          "mem_allocator",
          [](AlBackend&) { return py::module_::import("altorch._nccl").attr("mem_allocator")(); },
          "Allocates memory that NCCL's fastest paths want: for torch.cuda.MemPool.")
      .def(
          "register_mem_pool",
          [](const py::object& self, const py::object& pool, bool symmetric) {
            py::module_::import("altorch._nccl").attr("register_mem_pool")(self, pool, symmetric);
          },
          py::arg("pool"), py::arg("symm") = false,
          "Registers what the pool holds now with NCCL. symm: all ranks allocated alike; collective.")
      .def(
          "deregister_mem_pool",
          [](const py::object& self, const py::object& pool) {
            py::module_::import("altorch._nccl").attr("deregister_mem_pool")(self, pool);
          },
          py::arg("pool"))
      .def("add_buffer", &AlBackend::add_buffer, py::call_guard<py::gil_scoped_release>(), py::arg("address"),
           py::arg("bytes"), py::arg("symmetric"))
      .def("remove_buffer", &AlBackend::remove_buffer, py::call_guard<py::gil_scoped_release>(),
           py::arg("address"));
  py::class_<GlooBackend, c10::intrusive_ptr<GlooBackend>, AlBackend>(
      module, "GlooBackend", "What carries a group where there is no MPI.");
  module.def("create_backend", &create_backend, py::call_guard<py::gil_scoped_release>(), py::arg("store"),
             py::arg("rank"), py::arg("size"), py::arg("name"), py::arg("key_prefix"), py::arg("job_ranks"),
             py::arg("timeout_seconds"), py::arg("options"), py::arg("first_group"), py::arg("mpi_library"),
             py::arg("shim_directory"), py::arg("job_id"), py::arg("master_address"),
             "Collective over the group: starts MPI when it is the first group, and makes its backend.");
  module.def("create_gloo_backend", &wrap_gloo, py::call_guard<py::gil_scoped_release>(), py::arg("store"),
             py::arg("rank"), py::arg("size"), py::arg("name"), py::arg("key_prefix"), py::arg("job_ranks"),
             py::arg("timeout_seconds"), py::arg("options"), py::arg("whole_job"), py::arg("factory"),
             "Collective over the group: makes its backend where no MPI carries it. `factory` makes a "
             "ProcessGroupGloo.");
  module.def("set_carries_cuda", &set_carries_cuda, py::arg("value"),
             "Whether \"al\" is registered for CUDA tensors in this process.");
  module.def(
      "set_broken_window_hook",
      [](const py::function& hook) {
        // Never freed: a thread may fail while the interpreter ends.
        auto* kept = new py::function(hook);
        set_broken_window_hook([kept](const std::string& group) {
          const py::gil_scoped_acquire locked;
          (*kept)(group);
        });
      },
      py::arg("hook"), "Calls hook(group's name) when a call failed within a coalescing window of torch's.");
  module.def("statistics", &statistics, py::arg("backend"),
             "What the group has done, by operation and route.");
  module.def("algorithms", &algorithm_rows, "The table of algorithms.");
  module.def("explain", &explanation, py::arg("operation"), py::arg("dtype"), py::arg("bytes"),
             py::arg("ranks"), py::arg("rank") = 0, py::arg("algorithm") = py::none());
  module.def(
      "explain_on_gpus",
      [](const std::string& operation, const std::string& dtype, std::int64_t bytes, int ranks, int nodes,
         bool share_gpus) {
        return as_dict(
            guarded([&] { return explain_on_gpus(operation, dtype, bytes, ranks, nodes, share_gpus); }));
      },
      py::arg("operation"), py::arg("dtype"), py::arg("bytes"), py::arg("ranks"), py::arg("nodes") = 1,
      py::arg("share_gpus") = false);
  module.def(
      "gpu_routes",
      [](int device) {
        py::dict routes;
        const auto obstacles = guarded([&] { return gpu_route_obstacles(device); });
        for (std::size_t i = 0; i < obstacles.size(); ++i)
          routes[py::str(std::string(kGpuRouteNames[i]))] = obstacles[i];
        return routes;
      },
      py::arg("device"), "What stands in the way of each route for tensors on this GPU; empty: nothing.");
  module.def(
      "compile_reduction",
      [](const std::string& dtype, const std::string& op, int architecture) -> std::optional<std::size_t> {
        return guarded([&]() -> std::optional<std::size_t> {
          const DType type = dtype_named(dtype);
          const ReduceOp operation = reduce_op_named(op);
          if (!can_reduce(type, operation)) return std::nullopt;
          return compile_kernel(kernel_source(), reduction_kernel(type, operation), architecture)
              .cubin.size();
        });
      },
      py::call_guard<py::gil_scoped_release>(), py::arg("dtype"), py::arg("op"), py::arg("architecture"),
      "Compiles the GPU kernels of the host_staged route, which needs no GPU; bytes, or None where torch "
      "defines "
      "no such reduction.");
  module.def("nccl_allocator_obstacle", &nccl::allocator_obstacle,
             "Why NCCL cannot allocate memory; empty: it can.");
  module.def("settings", &setting_rows, "Every ALTORCH_* setting.");
  module.def("unknown_settings", [] { return unknown_settings(); });
  module.def("describe_job", &describe_job, "The MPI in use, or why there is none.");
  module.def("join_launched_job", &join_launched_job, py::call_guard<py::gil_scoped_release>(),
             py::arg("mpi_library"), py::arg("shim_directory"),
             "Starts MPI in a process that an MPI launcher started; (rank, size).");
  module.def("exchange_texts", &exchange_texts, py::call_guard<py::gil_scoped_release>(), py::arg("text"),
             "Collective over the MPI job: everybody's text, in rank order.");
  module.def("finalize_mpi", &finalize_job, py::call_guard<py::gil_scoped_release>(),
             "Ends MPI, if that is safe.");
}
