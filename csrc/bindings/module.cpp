// SPDX-License-Identifier: BSD-3-Clause
// The Python module altorch._C: makes backends, and answers questions about the engine. Nothing
// else.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backend/c10d/backend.h"
#include "backend/c10d/errors.h"
#include "backend/c10d/exact_sum.h"
#include "backend/c10d/quantized.h"
#include "backend/c10d/reconfigurable.h"
#include "backend/c10d/time_estimate.h"
#include "backend/cuda/cuda_watch.h"
#include "backend/gloo/transport.h"
#include "backend/store/start_mpi.h"
#include "backend/store/store.h"
#include "base/env.h"
#include "base/log.h"
#include "base/longest_timeout.h"
#include "bindings/host_bytes.h"
#include "bindings/process_memory.h"
#include "bindings/program_place.h"
#include "bindings/simulation.h"
#include "bindings/tokens.h"
#include "bindings/window.h"
#include "bootstrap/bootstrap.h"
#include "collectives/algorithm.h"
#include "device/kernels/names.h"
#include "device/nvrtc.h"
#include "explain/explain.h"
#include "gpu/gpu_routes.h"
#include "platform/fast_exit.h"
#include "platform/native_thread.h"
#include "platform/signal_check.h"
#include "reduction/exact_mode.h"
#include "reduction/reduce.h"
#include "rendezvous/shared_memory.h"
#include "runtime/callback_thread.h"
#include "select/costs.h"
#include "select/rules.h"
#include "select/table.h"
#include "trace/trace_board.h"
#include "transports/native_collectives.h"
#include "transports/shm/transport.h"
#include "windows/windows.h"

namespace py = pybind11;
using namespace altorch;           // NOLINT
using namespace altorch::backend;  // NOLINT

namespace {

std::chrono::milliseconds milliseconds(double seconds) { return timeout_of_seconds(seconds); }

// On the main thread, which runs Python's signal handlers.
bool signal_handler_raised() {
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() == 0) return false;
  backend::keep_for_caller(std::make_exception_ptr(py::error_already_set()));
  return true;
}

void warn_of_unknown_settings() {
  for (const std::string& unknown : unknown_settings()) {
    TORCH_WARN_ONCE("altorch: the environment variable ", unknown,
                    " is none that altorch knows; `altorch info` lists them");
  }
}

std::unique_ptr<Rendezvous> gather_group(const c10::intrusive_ptr<c10d::Store>& store,
                                         const Membership& group, const std::string& key,
                                         const c10::intrusive_ptr<AlOptions>& options,
                                         const std::vector<std::string>& agreed,
                                         const std::vector<std::string>& word,
                                         const std::vector<std::pair<std::string, long>>& processes) {
  return guarded([&] {
    warn_of_unknown_settings();
    Fields both = agreed;
    both.insert(both.end(), word.begin(), word.end());
    std::vector<ProcessId> known;
    for (const auto& [node, pid] : processes) known.push_back({node, pid});
    return std::make_unique<Rendezvous>(store, group, key, *options, both, agreed.size(), known);
  });
}

py::list algorithm_rows() {
  py::list rows;
  for (const Algorithm* each : algorithms()) {
    const Algorithm& row = *each;
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
  entry["protocol"] = said.protocol;
  entry["reason"] = said.reason;
  entry["rounds_text"] = said.rounds;
  entry["cost_seconds"] = said.seconds;
  py::list alternatives;
  for (const auto& other : said.alternatives) {
    py::dict row;
    row["name"] = other.name;
    row["cost_seconds"] = other.seconds;
    row["chosen_for"] = other.chosen_for;
    alternatives.append(row);
  }
  entry["alternatives"] = alternatives;
  py::dict others;
  for (const auto& other : said.others) others[py::str(other.name)] = other.unsupported_reason;
  entry["routes_not_taken"] = others;
  return entry;
}

py::list setting_rows() {
  py::list rows;
  for (const Setting& row : settings()) {
    py::dict entry;
    entry["name"] = row.name;
    entry["type"] = row.type;
    entry["default"] = row.default_value;
    entry["meaning"] = row.meaning;
    entry["must_agree"] = row.must_agree;
    entry["value"] = setting(row.name);
    rows.append(entry);
  }
  return rows;
}

// Empty for a backend that is not ours.
py::list stats(const c10::intrusive_ptr<c10d::Backend>& backend) {
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

// Under mpirun or srun, before there is any store: MPI tells rank and size, and carries the store's
// address.
std::pair<int, int> join_launched_job(const std::string& mpi_library, const std::string& shim_directory) {
  return guarded([&] {
    BootstrapOptions options;
    options.library = mpi_library;
    options.shim_directory = shim_directory;
    options.timeout = seconds_setting("ALTORCH_BOOTSTRAP_SECONDS");
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
  SignalCheck::set(&signal_handler_raised);
  py::class_<AlOptions, c10::intrusive_ptr<AlOptions>, c10d::Backend::Options>(
      module, "Options", "What `pg_options` of a group with backend 'al' may say.")
      .def(py::init([](double timeout_seconds, bool is_high_priority_stream, std::optional<int> min_ctas,
                       std::optional<int> max_ctas, std::optional<int> cga_cluster_size,
                       std::optional<bool> split_share, const std::optional<std::string>& on_error,
                       const std::optional<std::string>& deterministic) {
             auto options =
                 guarded([&] { return c10::make_intrusive<AlOptions>(milliseconds(timeout_seconds)); });
             options->is_high_priority_stream = is_high_priority_stream;
             const int unsaid = nccl::Config::kUndefined;
             options->nccl = {min_ctas.value_or(unsaid), max_ctas.value_or(unsaid),
                              cga_cluster_size.value_or(unsaid),
                              split_share ? static_cast<int>(*split_share) : unsaid};
             if (on_error) options->on_error = guarded([&] { return on_error_named(*on_error); });
             if (deterministic) guarded([&] { check_deterministic_option(*deterministic); });
             options->exact = deterministic.has_value();
             return options;
           }),
           py::arg("timeout_seconds") = 1800.0, py::kw_only(), py::arg("is_high_priority_stream") = true,
           py::arg("min_ctas") = py::none(), py::arg("max_ctas") = py::none(),
           py::arg("cga_cluster_size") = py::none(), py::arg("split_share") = py::none(),
           py::arg("on_error") = py::none(), py::arg("deterministic") = py::none(),
           "is_high_priority_stream: of the group's own stream on CUDA. min_ctas, max_ctas (thread blocks), "
           "cga_cluster_size, split_share: as in ncclConfig_t; None leaves them to NCCL. on_error: 'poison', "
           "'teardown' or 'continue'; None: what ALTORCH_ON_ERROR says. deterministic: 'exact' for sums that "
           "are rounded once; None: what ALTORCH_DETERMINISTIC says.")
      .def_readonly("is_high_priority_stream", &AlOptions::is_high_priority_stream)
      .def_property_readonly(
          "deterministic",
          [](const AlOptions& self) { return self.exact ? py::object(py::str(kExactMode)) : py::none(); })
      .def_readwrite("served_name", &AlOptions::served_name)
      .def("__copy__", [](const AlOptions& self) { return c10::make_intrusive<AlOptions>(self); })
      .def("__deepcopy__",
           [](const AlOptions& self, const py::dict&) { return c10::make_intrusive<AlOptions>(self); });
  bind_window(module);
  bind_tokens(module);
  bind_host_bytes(module);
  bind_simulation(module);
  // Where a group is bound to a device (device_id), torch calls perform_nocolor_split on the ranks
  // that a new group does not have. There is nothing to do, and they must not communicate.
  py::class_<AlBackend, c10::intrusive_ptr<AlBackend>, c10d::Backend>(module, "Backend",
                                                                      "What carries a group.")
      .def_property_readonly("options", &AlBackend::getBackendOptions)  // which torch 2.11 does not bind
      .def("perform_nocolor_split", [](AlBackend&, const py::object& /*device*/) {})
      .def_property_readonly("membership", &AlBackend::membership, py::return_value_policy::copy)
      .def_property_readonly("callers_store", &AlBackend::callers_store,
                             "The group's keys in the store, over the connection that it was made over.")
      .def(
          "find_survivors",
          [](AlBackend& self, double timeout_seconds, const c10::intrusive_ptr<c10d::Store>& store) {
            const Survivors left = self.find_survivors(milliseconds(timeout_seconds), store);
            return std::pair(left.attempt, left.ranks);
          },
          py::call_guard<py::gil_scoped_release>(), py::arg("timeout_seconds"), py::arg("store") = py::none(),
          "The attempt, and the ranks of the group that call this: collective over those that live.")
      .def(
          "all_succeeded",
          [](AlBackend& self, double timeout_seconds, const std::pair<int, std::vector<int>>& left, bool made,
             const c10::intrusive_ptr<c10d::Store>& store) {
            return self.all_succeeded(milliseconds(timeout_seconds), {left.first, left.second}, made, store);
          },
          py::call_guard<py::gil_scoped_release>(), py::arg("timeout_seconds"), py::arg("left"),
          py::arg("made"), py::arg("store") = py::none(),
          "Whether all survivors have made the next group; the same on all of them.")
      .def(
          "change_timeout", [](AlBackend& self, double seconds) { self.setTimeout(milliseconds(seconds)); },
          py::arg("seconds"), "Of the calls from now on.")
      .def("all_reduce_rms_norm", &AlBackend::all_reduce_rms_norm, py::call_guard<py::gil_scoped_release>(),
           py::arg("part"), py::arg("residual"), py::arg("weight"), py::arg("eps"),
           "For altorch.ops: rows of residual + sum(part) divided by their root mean square, and those sums.")
      .def("all_reduce_quantized", &AlBackend::all_reduce_quantized, py::call_guard<py::gil_scoped_release>(),
           py::arg("tensor"), py::arg("float8"), py::arg("mean"),
           "For altorch.ops: the sum of values that travel in 8 bits; None: no kernel of this group does it.")
      .def("scan", &AlBackend::scan, py::call_guard<py::gil_scoped_release>(), py::arg("tensor"),
           py::arg("op"), py::arg("exclusive"),
           "For altorch.ops: the reduction of the ranks up to this one, or below it (rank 0: its own).")
      .def(
          "move_bytes",
          [](AlBackend& self, const std::string& operation, int root, const py::buffer& input,
             const py::buffer& output, const std::vector<std::int64_t>& counts) {
            const at::Tensor from = tensor_over(input), to = tensor_over(output);
            const py::gil_scoped_release unlocked;
            self.move_bytes(kind_named(operation), root, from, to, counts);
          },
          py::arg("operation"), py::arg("root"), py::arg("input"), py::arg("output"), py::arg("counts"),
          "For altorch.objects: bytes whose number differs by rank.")
      .def(
          "send_bytes",
          [](AlBackend& self, const py::buffer& bytes, int peer) {
            const at::Tensor from = tensor_over(bytes);
            const py::gil_scoped_release unlocked;
            return self.send_bytes(from, peer);
          },
          py::arg("bytes"), py::arg("peer"),
          "For altorch.objects: a message that users' messages never match.")
      .def(
          "receive_bytes",
          [](AlBackend& self, const py::buffer& bytes, int peer) {
            const at::Tensor into = tensor_over(bytes);
            const py::gil_scoped_release unlocked;
            return self.receive_bytes(into, peer);
          },
          py::arg("bytes"), py::arg("peer"), "The other end of send_bytes().")
      .def("is_lost", &AlBackend::is_lost, py::arg("rank"),
           "Whether a rank of the group is known to be dead.")
      .def(
          "shrink",
          [](const py::object& self, const std::vector<int>& excluded, int flags, const py::object& options) {
            return py::module_::import("altorch._survivors").attr("shrink")(self, excluded, flags, options);
          },
          py::arg("ranks_to_exclude"), py::arg("shrink_flags") = 0, py::arg("opts_override") = py::none(),
          "What torch.distributed.shrink_group() calls: a backend of the other ranks, which all call it.")
      .def("open_window", &AlBackend::open_window, py::call_guard<py::gil_scoped_release>(),
           py::arg("tensor") = py::none(), "Collective: a window, with this rank's tensor.")
      .def("suspend", &AlBackend::suspend, py::call_guard<py::gil_scoped_release>(),
           "Gives the group's memory of the GPU back until resume(). Collective, as that is.")
      .def("resume", &AlBackend::resume, py::call_guard<py::gil_scoped_release>(),
           "Takes calls on CUDA tensors again.")
      .def("memory_stats", &AlBackend::getMemoryStats, py::call_guard<py::gil_scoped_release>(),
           "Bytes of the GPU's memory that this rank's part of the group has: suspend, which suspend() gives "
           "back, persist, total; suspended (0 or 1); and host, of pinned memory.")
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
      .def("abandon_window", &AlBackend::abandon_window, py::call_guard<py::gil_scoped_release>(),
           "Ends this thread's coalescing window, in which something was thrown; calls that it kept are "
           "dropped.")
      .def("add_buffer", &AlBackend::add_buffer, py::call_guard<py::gil_scoped_release>(), py::arg("address"),
           py::arg("bytes"), py::arg("symmetric"))
      .def("remove_buffer", &AlBackend::remove_buffer, py::call_guard<py::gil_scoped_release>(),
           py::arg("address"));
#ifdef ALTORCH_HAS_RECONFIGURE
  using Processes = std::vector<std::pair<std::string, long>>;
  using MakeGeneration =
      std::function<AlBackend::Made(std::int64_t, std::vector<std::string>, Processes, int, double)>;
  py::class_<ReconfigurableBackend, c10::intrusive_ptr<ReconfigurableBackend>, c10d::Backend>(
      module, "ReconfigurableBackend", "Stands in front of what carries a group whose ranks change.")
      .def(py::init([](int rank, int size, std::string name, const c10::intrusive_ptr<AlOptions>& options,
                       MakeGeneration make) {
             return c10::make_intrusive<ReconfigurableBackend>(
                 rank, size, std::move(name), options,
                 [make = std::move(make)](const ReconfigurableBackend::Asked& asked) {
                   Processes processes;
                   for (const ProcessId& each : asked.processes) processes.emplace_back(each.node, each.pid);
                   return make(asked.uuid, asked.handles, processes, asked.rank,
                               std::chrono::duration<double>(asked.timeout).count());
                 });
           }),
           py::arg("rank"), py::arg("size"), py::arg("name"), py::arg("options"), py::arg("make"),
           "make(uuid, handles, processes, rank, timeout_seconds): the Backend of these ranks, or None and "
           "why not.")
      .def_property_readonly(
          "now", py::cpp_function(&ReconfigurableBackend::now, py::call_guard<py::gil_scoped_release>()),
          "What carries the group now, or None.")
      .def_property_readonly("options", &ReconfigurableBackend::getBackendOptions)
      .def("perform_nocolor_split", [](ReconfigurableBackend&, const py::object& /*device*/) {});
#endif
  py::class_<Transport, std::shared_ptr<Transport>>(module, "Transport", "What links the ranks of groups.");
  py::class_<MpiStart>(module, "MpiStart", "How MPI is to be started, by the ranks of a job together.")
      .def(py::init<std::string, std::string, std::string, std::string>(), py::kw_only(), py::arg("library"),
           py::arg("shim_directory"), py::arg("job"), py::arg("master_address"));
  py::class_<Membership>(module, "Membership", "Who is in a group.")
      .def(py::init([](std::string name, int rank, std::vector<int> global_ranks, double timeout_seconds,
                       bool is_job, std::vector<int> before) {
             Membership group;
             group.name = std::move(name);
             group.rank = rank;
             group.global_ranks = std::move(global_ranks);
             group.timeout = milliseconds(timeout_seconds);
             group.is_job = is_job;
             group.before = std::move(before);
             return group;
           }),
           py::kw_only(), py::arg("name"), py::arg("rank"), py::arg("global_ranks"),
           py::arg("timeout_seconds"), py::arg("is_job"), py::arg("before") = std::vector<int>())
      .def_readonly("name", &Membership::name)
      .def_readonly("rank", &Membership::rank)
      .def_readonly("global_ranks", &Membership::global_ranks)
      .def_readonly("is_job", &Membership::is_job)
      .def_property_readonly(
          "timeout_seconds",
          [](const Membership& self) { return std::chrono::duration<double>(self.timeout).count(); })
      .def_readonly("key", &Membership::key)
      .def_property_readonly("watch_name",
                             [](const Membership& self) { return self.watch ? self.watch->name : ""; })
      .def_property_readonly(
          "has_one_node",
          [](const Membership& self) { return self.watch && !self.watch->liveness.has_far_members(); },
          "Whether all processes of the job see each other.");
  module.def("set_merge_maker", &AlBackend::set_merge_maker, py::arg("maker"),
             "maker(store, membership, options): the Backend of a merged group, or None and why not.");
  py::class_<Rendezvous>(module, "Rendezvous", "The ranks of a new group, which have met in the store.")
      .def_property_readonly("prefix", [](const Rendezvous& self) { return self.group().key; })
      .def_property_readonly("words", [](const Rendezvous& self) { return self.words(); })
      .def(
          "exchange",
          [](Rendezvous& self, const std::string& key, const std::string& text, bool starts_mpi) {
            return guarded([&] {
              const auto timeout = starts_mpi
                                       ? bootstrap_timeout(std::chrono::hours(24)) + std::chrono::seconds(10)
                                       : self.group().timeout;
              return self.exchange(key, text, timeout);
            });
          },
          py::call_guard<py::gil_scoped_release>(), py::arg("key"), py::arg("text"),
          py::arg("starts_mpi") = false,
          "The text of every rank, by rank; collective, once for each key. starts_mpi: who brings it may "
          "have "
          "started MPI before, "
          "which may take longer than the group's timeout.")
      .def(
          "commit",
          [](Rendezvous& self, const std::string& unsupported_reason, double timeout_seconds) {
            return guarded([&] { return self.commit(unsupported_reason, milliseconds(timeout_seconds)); });
          },
          py::call_guard<py::gil_scoped_release>(), py::arg("unsupported_reason"), py::arg("timeout_seconds"),
          "Two-phase commit, once: empty where all ranks have made the group, else why one has not.")
      .def("fail", &Rendezvous::fail, py::call_guard<py::gil_scoped_release>(), py::arg("why"),
           "This rank cannot make its part: ranks that wait for it raise.")
      .def("settle", &Rendezvous::settle, "From now on others may block in the caller's store.")
      .def(
          "leave", [](Rendezvous& self) { guarded([&] { self.leave(); }); },
          py::call_guard<py::gil_scoped_release>(),
          "The last thing of all: the rank that hosts the store leaves last.");
  module.def(
      "gather", &gather_group, py::call_guard<py::gil_scoped_release>(), py::arg("store"), py::arg("group"),
      py::arg("key"), py::arg("options"), py::arg("agreed"), py::arg("word"),
      py::arg("processes") = std::vector<std::pair<std::string, long>>(),
      "Collective over a new group: its ranks meet. key: of its name and its ranks. agreed: texts "
      "'name=value' that must be alike; word: "
      "what the others get to see of this rank. processes: node and process id of every rank, where they are "
      "known.");
  module.def(
      "mpi_transport",
      [](Rendezvous& group, const std::vector<int>& mpi_ranks, const std::optional<MpiStart>& start) {
        return guarded([&] { return mpi_transport(group, mpi_ranks, start); });
      },
      py::call_guard<py::gil_scoped_release>(), py::arg("rendezvous"), py::arg("mpi_ranks"), py::arg("start"),
      "MPI for a group and what is split off it; with `start`, collective: starts it.");
  module.def(
      "gloo_transport",
      [](GlooFactory factory, std::function<std::string()> address) -> std::shared_ptr<Transport> {
        return std::make_shared<ShmTransport>(
            std::make_shared<GlooTransport>(std::move(factory), std::move(address)));
      },
      py::arg("factory"), py::arg("address"),
      "Where no MPI carries a group. `factory` makes a ProcessGroupGloo.");
  module.def(
      "create_backend",
      [](Rendezvous& group, std::shared_ptr<Transport> transport,
         const c10::intrusive_ptr<AlOptions>& options) {
        return guarded([&] { return c10::make_intrusive<AlBackend>(group, std::move(transport), *options); });
      },
      py::call_guard<py::gil_scoped_release>(), py::arg("rendezvous"), py::arg("transport"),
      py::arg("options"), "Collective over the group: makes its backend.");
  module.def(
      "claim",
      [](const c10::intrusive_ptr<c10d::Store>& store, const std::string& key, const std::string& value,
         double timeout_seconds) {
        return guarded([&] { return C10dStore::claim(store, key, value, milliseconds(timeout_seconds)); });
      },
      py::call_guard<py::gil_scoped_release>(), py::arg("store"), py::arg("key"), py::arg("value"),
      py::arg("timeout_seconds"), "Writes the value where nothing is; what is there then.");
  module.def("prefixes_of", &C10dStore::prefixes_of, py::arg("store"),
             "The prefixes that stand before the keys of a store of torch's, outermost first.");
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
  module.def(
      "set_place_finder", &set_place_finder, py::arg("find"),
      "find() says where the program is, for those whom it keeps waiting; on altorch's callback thread.");
  module.def("end_abort_hooks", &TorchHooks::end_all, py::call_guard<py::gil_scoped_release>(),
             "Before the interpreter ends: no abort hook runs from now on.");
  module.def("records_for_itself", &records_for_itself,
             "Whether torch's flight recorder is to leave altorch's groups alone.");
  module.def("publish_flight_record", &publish_flight_record, py::call_guard<py::gil_scoped_release>(),
             "Shows torch's flight recorder of \"al\" what was recorded until now.");
  module.def("stats", &stats, py::arg("backend"), "What the group has done, by operation and route.");
  module.def(
      "transport",
      [](const c10::intrusive_ptr<c10d::Backend>& backend) {
        const auto* mine = dynamic_cast<const AlBackend*>(backend.get());
        return std::string(mine ? mine->transport() : "");
      },
      py::arg("backend"), "What carries the group's CPU tensors.");
  module.def(
      "log_info", [](const std::string& message) { log(LogLevel::kInfo, message); }, py::arg("message"),
      "One line on standard error, where ALTORCH_LOG_LEVEL is info or debug.");
  module.def("algorithms", &algorithm_rows, "The table of algorithms.");
  module.def("set_tuned_rules", &set_tuned_rules, py::arg("rules"),
             "Rules of `altorch tune`, in the syntax of ALTORCH_ROUTE, for groups made from now on.");
  module.def(
      "set_tuned_costs",
      [](const std::vector<std::tuple<bool, std::string, int, std::vector<std::pair<std::int64_t, double>>>>&
             found) {
        guarded([&] {
          std::vector<CostRow> rows;
          for (const auto& [on_gpu, operation, ranks, points] : found) {
            kind_named(operation);
            CostRow row{on_gpu ? On::kGpu : On::kHost, operation, ranks, {}};
            for (const auto& [bytes, us] : points) row.points.push_back({bytes, us});
            rows.push_back(std::move(row));
          }
          set_tuned_costs(std::move(rows));
        });
      },
      py::arg("rows"), "Times of `altorch tune`: on a GPU or not, operation, ranks, pairs of bytes and us.");
  module.def(
      "explain",
      [](const std::string& operation, const std::string& dtype, std::int64_t bytes, int ranks, int rank,
         const std::optional<std::string>& algorithm, bool on_gpus, int nodes, bool share_gpus, bool linked,
         bool over_mpi) {
        return as_dict(guarded([&] {
          return explain({operation, dtype, bytes, ranks, rank, algorithm.value_or(""), on_gpus, nodes,
                          share_gpus, linked, over_mpi});
        }));
      },
      py::arg("operation"), py::arg("dtype"), py::arg("bytes"), py::arg("ranks"), py::kw_only(),
      py::arg("rank") = 0, py::arg("algorithm") = py::none(), py::arg("on_gpus") = false,
      py::arg("nodes") = 1, py::arg("share_gpus") = false, py::arg("linked") = false,
      py::arg("over_mpi") = false);
  module.def("guard_time_estimates", &TimeEstimate::guard, py::arg("begins"),
             "A time estimate of this thread is ended whatever is thrown in it; False: no longer.");
  module.def(
      "shm_protocols",
      [](const std::string& operation) {
        const auto names = guarded([&] { return shm_protocols(kind_named(operation)); });
        return std::vector<std::string>(names.begin(), names.end());
      },
      py::arg("operation"), "What ALTORCH_ROUTE may name behind shm/ for an operation.");
  module.def(
      "gpu_protocols",
      [] {
        py::dict found;
        for (const GpuRouteRow* row : gpu_route_rows()) {
          const auto names = row->protocols();
          found[py::str(std::string(row->name))] = std::vector<std::string>(names.begin(), names.end());
        }
        return found;
      },
      "The routes of CUDA tensors, and what ALTORCH_ROUTE may name behind each.");
  module.def(
      "links_rows",
      [] {
        py::list rows;
        for (const Row& row : rows_on(On::kLinks)) rows.append(py::make_tuple(row.carrier, row.reason));
        return rows;
      },
      "What may carry the messages of a group, best first, and why.");
  module.def(
      "gpu_routes",
      [](int device) {
        py::dict routes;
        for (const RouteUnsupportedReason& each :
             guarded([&] { return gpu_route_unsupported_reasons(device); }))
          routes[py::str(std::string(each.route))] = each.why;
        return routes;
      },
      py::arg("device"), "What stands in the way of each route for tensors on this GPU; empty: nothing.");
  module.def(
      "compile_reduction",
      [](const std::string& dtype, const std::string& op, int architecture) -> std::optional<std::size_t> {
        return guarded([&]() -> std::optional<std::size_t> {
          const DType type = dtype_named(dtype);
          const ReduceOp operation = rounded_once(reduce_op_named(op), type);
          if (!can_reduce(type, operation)) return std::nullopt;
          return compile_kernel(reduction_kernel(type, operation), architecture).size();
        });
      },
      py::call_guard<py::gil_scoped_release>(), py::arg("dtype"), py::arg("op"), py::arg("architecture"),
      "Compiles the GPU kernels of the host_staged route, which needs no GPU; bytes, or None where torch "
      "defines "
      "no such reduction.");
  module.def(
      "exact_sum",
      [](const at::Tensor& stacked, bool mean) { return guarded([&] { return exact_sum(stacked, mean); }); },
      py::call_guard<py::gil_scoped_release>(), py::arg("stacked"), py::arg("mean"),
      "The exact sum, or mean, over the first dimension, rounded once: a new tensor.");
  module.def(
      "quantize",
      [](const at::Tensor& tensor, std::int64_t number, bool float8, bool mean) {
        return guarded([&] { return quantize(tensor, number, float8, mean); });
      },
      py::call_guard<py::gil_scoped_release>(), py::arg("tensor"), py::arg("number"), py::arg("float8"),
      py::arg("mean"), "The values in 8 bits: a byte tensor with a row for each of `number` chunks.");
  module.def(
      "sum_quantized",
      [](const at::Tensor& chunks, const at::Tensor& result, double factor, bool float8) {
        guarded([&] { sum_quantized(chunks, result, factor, float8); });
      },
      py::call_guard<py::gil_scoped_release>(), py::arg("chunks"), py::arg("result"), py::arg("factor"),
      py::arg("float8"), "Writes the sum of the rows of chunks, times `factor`.");
  module.def(
      "dequantize",
      [](const at::Tensor& chunks, const at::Tensor& result, bool float8) {
        guarded([&] { dequantize(chunks, result, float8); });
      },
      py::call_guard<py::gil_scoped_release>(), py::arg("chunks"), py::arg("result"), py::arg("float8"),
      "Writes the values of the rows of chunks, one behind the other.");
  module.def("nccl_allocator_unsupported_reason", &nccl::allocator_unsupported_reason,
             "Why NCCL cannot allocate memory; empty: it can.");
  module.def("fail_thread_starts_after", &fail_thread_starts_after, py::arg("starts"),
             "For tests: after so many more, no thread of altorch can be started; negative: all can.");
  module.def("settings", &setting_rows, "Every ALTORCH_* setting.");
  module.def("unknown_settings", [] { return unknown_settings(); });
  module.def(
      "shared_memory_unsupported_reason",
      [](int ranks) { return guarded([&] { return ShmTransport::unsupported_reason(ranks); }); },
      py::arg("ranks"), "Why this process cannot share memory in a group of so many ranks, or None.");
  add_process_memory(module);
  module.def("shared_memory_node", &shared_memory_node, "Processes with the same text can share memory.");
  module.def("describe_job", &describe_mpi, "The MPI in use, or why there is none.");
  module.def("join_launched_job", &join_launched_job, py::call_guard<py::gil_scoped_release>(),
             py::arg("mpi_library"), py::arg("shim_directory"),
             "Starts MPI in a process that an MPI launcher started; (rank, size).");
  module.def("exchange_texts", &exchange_texts, py::call_guard<py::gil_scoped_release>(), py::arg("text"),
             "Collective over the MPI job: the text of every rank, in rank order.");
  module.def(
      "stop_threads",
      [] {
        const bool is_watched = CudaWatch::is_there();
        bool all_stopped = CudaWatch::stop();
        Windows::stop();
        SignalCheck::set(nullptr);
        TraceBoard::instance().write_last_metrics();
        all_stopped &= CallbackThread::finish(std::chrono::seconds(2));
        end_without_destructors(/*forced=*/is_watched && !all_stopped);
      },
      py::call_guard<py::gil_scoped_release>(),
      "At exit, before CUDA, Python and torch go: nothing looks after GPUs, serves windows or wants Python's "
      "lock any more.");
  module.def(
      "finalize_mpi", [](bool after_failure) { finalize_mpi(after_failure); },
      py::call_guard<py::gil_scoped_release>(), py::arg("after_failure"),
      "Ends MPI, if that is safe. after_failure: the program ends with an error; it waits for no rank.");
}
