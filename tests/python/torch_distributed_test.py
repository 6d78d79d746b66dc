# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own DistributedTest, from the installed wheel, with another backend.

    python -m tests.python.torch_distributed_test --impersonate gloo --ranks 2 --backend al --jobs 1

The result is compared with the tests that the impersonated backend (Gloo for mpi) passes, as torch_suite_baseline.json
has them, written by --backend gloo --write-baseline: every one must pass, but for the exceptions below.

Impersonating nccl needs a GPU for each rank. Both backends in one go, each for 150 s at most:

    python -m tests.python.torch_distributed_test --impersonate nccl --ranks 2 --against nccl --jobs 6 --limit 150
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.ranks.launch import clean_environment

HERE = Path(__file__).resolve().parent
STATUSES = ("passed", "failed", "skipped", "not run")
BASELINE = HERE / "torch_suite_baseline.json"

# Whose passes count with each impersonated backend. torch's wheels hold no MPI backend.
REFERENCES = {"gloo": "gloo", "mpi": "gloo", "nccl": "nccl"}

# Tests that the reference passes and that the backend under test cannot: each with its reason.
EXCEPTIONS: dict[str, str] = {
    "test_ddp_logging_data_cpu": "torch itself logs every plugin's backend_name as 'custom'; the test wants the name",
}

_BY_NAME = "before torch 2.14 dist.monitored_barrier refuses every backend but Gloo, by name"
EXCEPTIONS_BEFORE_2_14 = {
    "test_monitored_barrier_gloo": _BY_NAME,
    "test_monitored_barrier_gloo_subgroup": _BY_NAME,
    "test_monitored_barrier_failure_order": _BY_NAME,  # these two want more than four ranks
    "test_monitored_barrier_wait_all_ranks": _BY_NAME,
}

_TIMEOUT = "the test wants ProcessGroupNCCL's words for a timeout"
EXCEPTIONS_NCCL = {
    "test_ddp_profiling_torch_profiler": "the test wants asynchronous events; altorch records the calls",
    "test_batch_isend_irecv_self_nccl": "one rank alone makes the group's first CUDA call, which here takes all ranks",
    "test_ddp_profiling_execution_trace": "the test wants the name nccl, and what only ProcessGroupNCCL writes down",
    "test_monitored_barrier_allreduce_hang": _TIMEOUT,
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": _TIMEOUT,
}

# A few minutes' worth that touches every kind of operation; the whole suite is run on demand.
QUICK_GLOO = (
    "test_all_gather",
    "test_all_gather_coalesced_simple",
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_full_group_sum",
    "test_all_reduce_complex_unsupported_ops",
    "test_all_reduce_group_sum",
    "test_all_reduce_sum_async",
    "test_backend_full_group",
    "test_barrier_timeout_global",
    "test_batch_isend_irecv_gloo_tags",
    "test_broadcast_object_list",
    "test_ddp_buffer_hook_allreduce",
    "test_ddp_join_model_equivalence",
    "test_DistributedDataParallelCPU",
    "test_gather_full_group",
    "test_isend_autograd_profiler",
    "test_monitored_barrier_gloo_subgroup",
    "test_new_subgroups",
    "test_reduce_full_group_max",
    "test_reduce_scatter_tensor",
    "test_scatter_checks",
    "test_send_recv_any_source",
    "test_send_recv_with_tag",
)
# Tests that Gloo does not pass and that this backend must: lists for all_to_all on CPU.
BEYOND_GLOO = {"mpi": {"test_all_to_all", "test_all_to_all_complex", "test_all_to_all_full_group"}}
# Impersonating mpi the suite runs the CPU all_to_all tests, which it skips for gloo.
QUICK_MPI = ("test_all_to_all", "test_all_to_all_single_unequal_split_complex")
QUICK_NCCL = (
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_all_gather_object_subgroup",
    "test_all_gather_v_cuda",
    "test_all_reduce_sum_cuda_async",
    "test_all_to_all_single_unequal_split_cuda_complex",
    "test_average_parameters",
    "test_batch_isend_irecv_ring_exchange_nccl",
    "test_coalescing_manager_async",
    "test_ddp_join_model_equivalence",
    "test_DistributedDataParallel_SyncBatchNorm",
    "test_nccl_backend_bool_allreduce",
    "test_reduce_scatter_tensor_cuda",
)
QUICK = {"gloo": QUICK_GLOO, "mpi": QUICK_MPI, "nccl": QUICK_NCCL}
# The longest by far. They are started first, one by each runner, so that no runner waits for them
# in the end.
LONG = (
    "test_ddp_uneven_inputs",
    "test_DistributedDataParallel",
    "test_DistributedDataParallel_non_default_stream",
    "test_ddp_hook_parity_post_localSGD",
    "test_ddp_hook_parity_powerSGD",
    "test_ddp_compile_static_graph",
)


def torch_minor() -> str:
    import torch

    return ".".join(torch.__version__.split(".")[:2])


def unsupported_reason(impersonated: str, ranks: int) -> str | None:
    """Why the impersonated backend's tests cannot run here, or None."""
    if find_spec("expecttest") is None:
        return "PyTorch's suite imports expecttest, which is not installed (pip install expecttest)"
    if impersonated != "nccl":
        return None
    import torch

    found = torch.cuda.device_count()
    return f"{ranks} ranks need a GPU each, and {found} are visible" if found < ranks else None


def environment(impersonated: str, ranks: int, backend: str, deadline: int) -> dict[str, str]:
    return clean_environment(
        {
            "ALTORCH_TEST_SUITE_IMPERSONATES": impersonated,
            "ALTORCH_TEST_SUITE_BACKEND": backend,
            "WORLD_SIZE": str(ranks),
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(deadline),
            # The suite asks for GPUs when it is imported. Asked this way, the importing process can
            # still be forked.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
    )


def all_names(env: dict[str, str]) -> list[str]:
    program = "import torch_suite_cases, json; print(json.dumps(torch_suite_cases.all_names()))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise RuntimeError(f"PyTorch's DistributedTest could not be imported:\n{done.stderr[-3000:]}")
    names: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return names


class Slot:
    """One runner process; when it hangs beyond the deadline it is killed and goes on after the hanging test."""

    def __init__(
        self, names: list[str], env: dict[str, str], deadline: int, directory: Path, index: int
    ) -> None:
        self.todo, self.env, self.deadline = names, env, deadline
        self.path = directory / f"results{index}.jsonl"
        self.log = directory / f"output{index}.log"
        self.path.touch()
        self.results: dict[str, dict[str, Any]] = {}
        self.running: str | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._restart()

    def _restart(self) -> None:
        self.todo = [name for name in self.todo if name not in self.results]
        if not self.todo:
            self.process = None
            return
        program = [sys.executable, str(HERE / "torch_suite_runner.py"), str(self.path), *self.todo]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                program, env=self.env, stdout=log, stderr=log, start_new_session=True
            )

    def _kill(self) -> None:
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def poll(self) -> bool:
        """Take in new results; whether there is still work."""
        if self.process is None:
            return False
        self._take_in()
        running = self.running
        quiet = time.time() - max(self.path.stat().st_mtime, self._started_at())
        ended = self.process.poll() is not None
        if ended or quiet > self.deadline + 30:
            self._kill()
            if running:
                detail = "the runner died" if ended else f"no result after {quiet:.0f} s"
                self.results[running] = {
                    "test": running,
                    "status": "failed",
                    "seconds": quiet,
                    "detail": detail,
                }
                self.results[running]["output"] = self._new_output()
            elif ended and any(name not in self.results for name in self.todo):
                for name in self.todo:
                    detail = f"the runner ended early with status {self.process.returncode}"
                    self.results.setdefault(
                        name, {"test": name, "status": "failed", "seconds": 0, "detail": detail, "output": ""}
                    )
            self._restart()
        return self.process is not None

    def _take_in(self) -> None:
        self.running = None
        for line in self.path.read_text().splitlines():
            entry = json.loads(line)
            self.running = entry["test"] if entry["status"] == "started" else None
            if entry["status"] != "started" and entry["test"] not in self.results:
                self.results[entry["test"]] = entry
                if entry["status"] == "failed":
                    entry["output"] = self._new_output()
                self._new_output()

    def _started_at(self) -> float:
        return self.log.stat().st_ctime if self.log.exists() and not self.results else 0.0

    def _new_output(self) -> str:
        data = self.log.read_bytes()
        start = getattr(self, "_offset", 0)
        self._offset = len(data)
        return data[start:][-6000:].decode(errors="replace")

    def close(self, why: str = "the run was interrupted") -> None:
        """Kill the runner; what it has not done becomes "not run"."""
        if self.process is None:
            return
        self._kill()
        self._take_in()
        for name in self.todo:
            if name in self.results:
                continue
            entry = {"test": name, "status": "not run", "seconds": 0, "detail": why, "output": ""}
            if name == self.running:
                entry |= {"detail": f"{why} in the middle of it", "output": self._new_output()}
            self.results[name] = entry


def run(
    impersonated: str,
    ranks: int,
    backend: str,
    *,
    jobs: int = 1,
    patterns: tuple[str, ...] = (),
    deadline: int = 90,
    limit: int | None = None,
    progress: bool = False,
) -> dict[str, dict[str, Any]]:
    """Run the matching tests; {name: {status, seconds, detail, output}}, where status is one of STATUSES.

    After `limit` seconds the run ends, with tests that are "not run".
    """
    started = time.monotonic()
    env = environment(impersonated, ranks, backend, deadline)
    names = all_names(env)
    if patterns:
        names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    names.sort(key=lambda name: name not in LONG)
    with tempfile.TemporaryDirectory(prefix="altorch-suite-") as directory:
        jobs = max(1, min(jobs, len(names)))
        slots = [Slot(names[index::jobs], env, deadline, Path(directory), index) for index in range(jobs)]
        shown = 0
        try:
            while sum(slot.poll() for slot in slots):
                time.sleep(0.2)
                done = sum(len(slot.results) for slot in slots)
                if progress and done != shown:
                    print(f"\r{done}/{len(names)}", end="", file=sys.stderr, flush=True)
                    shown = done
                if limit is not None and time.monotonic() - started > limit:
                    break
        finally:
            for slot in slots:
                slot.close(f"the run's {limit} s were over")
    if progress:
        print(file=sys.stderr)
    return {name: entry for slot in slots for name, entry in slot.results.items()}


def exceptions(impersonated: str) -> dict[str, str]:
    older = tuple(map(int, torch_minor().split("."))) < (2, 14)
    of_backend = EXCEPTIONS_NCCL if impersonated == "nccl" else {}
    return EXCEPTIONS | (EXCEPTIONS_BEFORE_2_14 if older else {}) | of_backend


def passed(results: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, entry in results.items() if entry["status"] == "passed"}


def baseline(impersonated: str, ranks: int) -> set[str] | None:
    """What the reference passes with this torch, or None when no run has measured it."""
    if not BASELINE.exists():
        return None
    table = json.loads(BASELINE.read_text())
    names = table.get(torch_minor(), {}).get(f"{impersonated}-{ranks}")
    return None if names is None else set(names)


def write_baseline(impersonated: str, ranks: int, results: dict[str, dict[str, Any]]) -> None:
    """Record what passed. Of tests that were not run the file goes on saying what it said."""
    table = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    ran = {name for name, entry in results.items() if entry["status"] != "not run"}
    names = sorted(passed(results) | (baseline(impersonated, ranks) or set()) - ran)
    table.setdefault(torch_minor(), {})[f"{impersonated}-{ranks}"] = names
    BASELINE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


def telling_line(detail: str) -> str:
    """The line of a traceback that says what went wrong."""
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    telling = [line for line in lines if "Error: " in line or line.startswith("Expected ")]
    return " / ".join(telling[-2:]) or (lines[-1] if lines else "")


def last_lines(entry: dict[str, Any], count: int = 6) -> list[str]:
    """The end of what a test said that did not pass."""
    lines = [line for line in entry["detail"].splitlines() if line.strip()][-count:]
    if "exception:" not in entry["detail"]:  # no rank said why: stacks of a hang or a crash are in the output
        lines += [line for line in entry.get("output", "").splitlines() if line.strip()][-2 * count :]
    return lines


def shortfall(
    impersonated: str,
    ranks: int,
    backend: str,
    results: dict[str, dict[str, Any]],
    expected: set[str] | None = None,
) -> dict[str, str]:
    """Tests that should pass (by the baseline, if not said), did not, and that no exception covers: name -> reason."""
    if expected is None:
        expected = baseline(impersonated, ranks)
    if expected is None:  # no run has measured the reference with this torch: whatever fails counts
        expected = {name for name, entry in results.items() if entry["status"] == "failed"}
    if backend != REFERENCES[impersonated]:
        expected = expected | BEYOND_GLOO.get(impersonated, set())
    return {
        name: f"{results[name]['status']}: {telling_line(results[name]['detail'])}"
        for name in sorted(expected & set(results) - set(exceptions(impersonated)))
        if results[name]["status"] != "passed"
    }


def tally(results: dict[str, dict[str, Any]]) -> dict[str, int]:
    return {status: sum(entry["status"] == status for entry in results.values()) for status in STATUSES}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--impersonate", default="gloo", choices=REFERENCES, help="the backend whose tests are run"
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="al")
    parser.add_argument(
        "--against",
        metavar="BACKEND",
        help="run BACKEND first, and compare with what it passed, not with the baseline",
    )
    parser.add_argument("--jobs", type=int, default=1, help="tests run at a time")
    parser.add_argument("--deadline", type=int, default=90, help="seconds for one test")
    parser.add_argument("--limit", type=int, help="seconds for all tests of one backend")
    parser.add_argument("--json", type=Path, help="write all results here")
    parser.add_argument(
        "--write-baseline",
        action="store_true",
        help="record what passes (with --backend gloo, say, or with --against gloo)",
    )
    parser.add_argument("--quick", action="store_true", help="only the subset that the default pytest runs")
    parser.add_argument(
        "--profiling",
        action="store_true",
        help="also ask for profiler events, as the impersonated backend is",
    )
    parser.add_argument("--verbose", action="store_true", help="print the output of failed tests")
    parser.add_argument("patterns", nargs="*", help="test names, with * and ?")
    options = parser.parse_args()
    if why := unsupported_reason(options.impersonate, options.ranks):
        parser.error(f"impersonating {options.impersonate}: {why}")
    if options.write_baseline and (options.against or options.backend) != REFERENCES[options.impersonate]:
        parser.error(
            f"the baseline for {options.impersonate} is what {REFERENCES[options.impersonate]} passes"
        )
    if options.profiling:
        os.environ["ALTORCH_TEST_SUITE_PROFILING"] = "1"
    reference = options.against or REFERENCES[options.impersonate]

    def run_with(backend: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        started = time.monotonic()
        results = run(
            options.impersonate,
            options.ranks,
            backend,
            jobs=options.jobs,
            patterns=tuple(options.patterns) or (QUICK[options.impersonate] if options.quick else ()),
            deadline=options.deadline,
            limit=options.limit,
            progress=sys.stderr.isatty(),
        )
        counts = {**tally(results), "seconds": round(time.monotonic() - started)}
        print(f"{backend}: " + ", ".join(f"{number} {what}" for what, number in counts.items()), flush=True)
        for name, entry in sorted(results.items()):
            if entry["status"] in ("failed", "not run"):
                print(f"{entry['status'].upper()} {name} ({entry['seconds']} s)")
                if options.verbose:
                    print(entry["detail"], entry.get("output", ""), sep="\n")
        return results, counts

    standard: dict[str, dict[str, Any]] = {}
    expected = baseline(options.impersonate, options.ranks)
    if options.against:
        standard, standard_counts = run_with(options.against)
        expected = passed(standard)
    results, counts = run_with(options.backend)
    if options.write_baseline:
        write_baseline(options.impersonate, options.ranks, standard or results)
    short = shortfall(options.impersonate, options.ranks, options.backend, results, expected)
    summary: dict[str, Any] = {
        "impersonated": options.impersonate,
        "ranks": options.ranks,
        "backend": options.backend,
        "torch": torch_minor(),
        **counts,
        f"{reference}_passes": len(expected or ()),
        "exceptions": {name: why for name, why in exceptions(options.impersonate).items() if name in results},
        f"short_of_{reference}": short,
    }
    if options.against:
        summary["against"] = {"backend": options.against, **standard_counts}
    if options.json:
        whole = {"summary": summary, "results": results} | ({"against": standard} if standard else {})
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    print(json.dumps(summary, indent=1))
    excepted = exceptions(options.impersonate)
    for name in sorted((set(short) | (expected or set())) & set(results) - passed(results)):
        why = f" (an exception: {excepted[name]})" if name in excepted else ""
        print(f"\n{name}: {results[name]['status']}{why}", *last_lines(results[name]), sep="\n    ")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
