# SPDX-License-Identifier: BSD-3-Clause
"""The commands and the Python code of the pages: each runs here, or is listed with the reason why it does not.

A block is fenced (sh, bash, console, python) or indented; an indented block holds commands. A command that is listed
is still checked as far as it goes without running: the options of `altorch`, the targets of `make`, the files and
modules that it names. Python code that is listed is compiled.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist
from harness import PROGRAM_DEADLINE, Cluster

from altorch.cli import build_parser
from tests.ranks.launch import REPOSITORY, backend_under_test, clean_environment
from tests.ranks.ports import free_port

SHELL, PYTHON = ("sh", "bash", "console"), ("python",)

# Commands that do not run here: a pattern of the whole command, and why.
LISTED_COMMANDS = {
    r"make .*": "builds, tests or measures for minutes: .ci/run, by hand",
    r"(pip|pre-commit) install .*|pre-commit install": "changes an environment or the checkout",
    r"\. \.venv/bin/activate": "the environment of this test stands for it",
    r"(\w+=\S+ )*pytest( .*)?": "these tests themselves",
    r"python (tests/python/|-m tests\.).*|export ALTORCH_TEST_OPENMPI5=.*": "test programs that run for minutes",
    r"tests/launchers/slurm\.sh .*": "starts a private Slurm, where there is one: make test-launchers",
    r"cmake --build .*|(\w+=\S+ )?build/dev/tests/cpp/altorch_tests .*": "C++ tests: make test-cpp",
    r"python -m benchmarks\..*": "needs a machine that does nothing else, for minutes",
    r"torchrun .* -m altorch check --between-nodes": "needs several nodes; test_between_nodes.py cuts a machine",
    r"torchrun --nnodes 2 .* (-m altorch check|train\.py)": "needs two machines; test_cli.py runs check on one",
    r"torchrun .* --device cuda .*": "needs two GPUs; test_cuda.py, test_tune.py and test_cli.py run the commands",
    r"(\w+=\S+ )+torchrun --nproc-per-node \d train\.py": "train.py is the reader's; test_serve.py and test_tune.py "
    "set the variables",
    r"torchrun .* altorch bench all_to_all .*": "four ranks, which take their time on two cores; other pages run bench",
    r"export TORCH_FR_DUMP.*|torchrun .* slow\.py &|altorch trace --dump .*|altorch report .*": "a job of four ranks "
    "for eight seconds; test_report.py runs one of two",
    r"(for n in 1 2 4; do )?(\w+=\S+ )?torchrun .* examples/exact_digits\.py.*": "test_examples.py runs it",
    r"(torchrun|mpiexec) .* examples/(language|mpi4py|weights)\w+\.py.*": "test_examples.py runs them at a small size",
    r"(\w+=\S+ )?srun .*": "needs several nodes and Slurm; test_tune_nodes.py "
    "tests the file that it writes, with made-up times",
    r"altorch tune .*": "two minutes; test_tune.py runs it with a smaller budget",
    r"((VLLM|SGLANG|ALTORCH)_\w+=\S* )*(python -m (vllm|sglang)|torchrun .*/vllm_altorch).*": "needs vLLM or "
    "SGLang, and a model",
}
# Appended to commands that run, so that they take seconds.
SHORTENED = {"altorch bench": "--seconds 0.05 --sizes 1K"}
# Python code that a command of the same page runs, under the name that the page gives it.
PROGRAMS = {"README.md": "example.py", "docs/five-minutes.md": "first.py", "docs/simulate.md": "step.py"}
# Python code that does not run here, by page and first line, and why.
LISTED_PYTHON = {
    ("docs/membership.md", 'dist.init_process_group("al", rank=number, world_size=workers, store=store, '
     "enable_reconfigure=True)"): "the program tells ranks of handles; test_reconfigure.py",
    ("docs/membership.md", "store = dist.TCPStore(host, port, is_master=..., wait_for_workers=False)   # one for each "
     "merge, which all of them reach"): "two groups; test_merge.py",
    ("docs/report.md", "import time"): "eight seconds; test_report.py runs such a job",
    ("docs/streams.md", 'torch.backends.cuda.preferred_blas_library("cublaslt")'): "a GPU; test_cuda.py",
    ("docs/streams.md", 'backend = dist.group.WORLD._get_backend(torch.device("cuda"))'): "a GPU; test_cuda_memory.py",
    ("docs/streams.md", 'backend = dist.group.WORLD._get_backend(torch.device("cuda")) (2)'): "a GPU; "
    "test_cuda_suspend.py",
    ("docs/testing.md", "@on_ranks(2, 3, 4)                                # world sizes; one pytest item each"):
        "a test; test_reductions.py has such",
    ("docs/troubleshooting.md", "import time"): "hangs for ten minutes on purpose; test_trace.py",
    ("docs/windows.md", "import torch"): "test_examples.py runs it",
    ("docs/windows.md", 'inbox = altorch.empty(4, 8, device="cuda")   # what other GPUs can map'): "a GPU; "
    "test_cuda_windows.py",
    ("docs/windows.md", 'backend = dist.group.WORLD._get_backend(torch.device("cuda"))'): "a GPU; "
    "test_cuda_windows.py",
    ("docs/windows.md", "from torch.distributed._transport import new_transport_rank"): "torch 2.15 and a peer that is "
    "in no group; test_transport.py",
}  # fmt: skip
# Python code that is quoted from the sources of a folder.
QUOTED = {"docs/vllm-sglang.md": "examples"}

GROUP = """
import torch
import torch.distributed as dist
import altorch
if not dist.is_initialized():
    dist.init_process_group("al")
rank, ranks = dist.get_rank(), dist.get_world_size()
"""
# What the program of the reader has before a block, by page and first line.
BEFORE = {
    ("docs/errors.md", "try:"): GROUP + """
batch = None
model = torch.nn.Linear(1, 1)
def step(model, batch):
    raise dist.DistBackendError("a rank is lost")
loaded = []
load_checkpoint = loaded.append
""",
    ("docs/exact.md", "import altorch"): GROUP + "tensor = torch.full((3,), 1.0 + rank)\n",
    ("docs/exact.md", "import altorch.ops"): "shards = [torch.ones(3), torch.ones(3)]\n",
    ("docs/objects.md", 'objects.all_gather_object(found, {"loss": 0.5}, allow=[])'): """
assert [each["rank"] for each in found] == list(range(len(found)))
import collections
Plan = collections.Counter
plan = collections.OrderedDict(part=Plan(layers=3))
""",
    ("docs/ops.md", "import altorch.ops"): GROUP + """
part, weight = torch.full((3, 8), float(rank)), torch.ones(8)
x = summed = torch.ones(3, 8)
""",
    ("docs/ops.md", "begin = altorch.ops.scan(torch.tensor(len(mine)), exclusive=True)       # 0 on rank 0, len of "
     "rank 0 on rank 1, ..."): "mine = [0] * 5\n",
    ("docs/tuning.md", 'with dist._time_estimator(device=torch.device("cpu")) as estimate:'): GROUP,
}  # fmt: skip
# What holds after all blocks of a page have run.
AFTER = {
    "docs/errors.md": "assert loaded == [model] and size == ranks",
    "docs/exact.md": "assert tensor[0] == ranks * (ranks + 1) / 2 and total.tolist() == [2, 2, 2]",
    "docs/frameworks.md": """
import os
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0)
x = torch.ones(3)
group = make_group(store, rank, size)
group.allreduce([x]).wait()
assert x.eq(size).all()
store.set(f"done{rank}", "")
store.wait([f"done{each}" for each in range(size)])
""",
    "docs/objects.md": "assert found == [plan] * len(found)",
    "docs/ops.md": """
assert torch.allclose(x, torch.full_like(x, 1 + ranks * (ranks - 1) / 2)) and normed.shape == x.shape
assert begin == 5 * rank and upto.equal(x)
""",
    "docs/serving.md": 'assert dist.get_backend() == "gloo"',
    "docs/token-switch.md": """
share = weights.sum(1, keepdim=True)
torch.testing.assert_close(result, torch.tanh(tokens) * share)
torch.testing.assert_close(tokens.grad, (1 - torch.tanh(tokens) ** 2) * share)
""",
    "docs/tuning.md": "assert estimate.estimated_time > 0",
}


class Block(NamedTuple):
    page: str
    language: str  # "" of an indented one
    text: str
    key: tuple[str, str]  # page and first line; the second block with that line has " (2)" behind it


def blocks() -> Iterator[Block]:
    for path in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]):
        page, text = str(path.relative_to(REPOSITORY)), path.read_text()
        fence = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
        found = [
            (language or "text", re.sub(f"^{indentation}", "", code, flags=re.MULTILINE))
            for indentation, language, code in fence.findall(text)
        ]
        for code in re.findall(r"(?:^ {4,}\S.*\n)+", fence.sub("", text), re.MULTILINE):
            found.append(("", re.sub("^    ", "", code, flags=re.MULTILINE)))
        seen: Counter[str] = Counter()
        for language, code in found:
            line = code.strip().partition("\n")[0]
            seen[line] += 1
            yield Block(page, language, code, (page, f"{line} ({seen[line]})" if seen[line] > 1 else line))


ALL = list(blocks())
PYTHON_BLOCKS = [block for block in ALL if block.language in PYTHON]


def commands_of(block: Block) -> list[str]:
    """Without comments, and with continued lines as one."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ") if block.language == "console" else line
        words = shlex.split(line, comments=True)
        if words:
            code = line if "#" not in line else re.sub(r"\s+#.*", "", line)
            found.append(re.sub(r"\s+", " ", code).strip())
    return found


COMMANDS = [
    (block.page, command) for block in ALL if block.language in (*SHELL, "") for command in commands_of(block)
]


def reason_of(command: str) -> str | None:
    return next((why for pattern, why in LISTED_COMMANDS.items() if re.fullmatch(pattern, command)), None)


def pages_to_run() -> dict[str, list[str]]:
    """The commands that run, each once, by page."""
    pages: dict[str, list[str]] = {}
    seen = set()
    for page, command in sorted(COMMANDS, key=lambda each: each[0] != "docs/five-minutes.md"):
        if reason_of(command) is None and command not in seen:
            seen.add(command)
            pages.setdefault(page, []).append(command)
    return pages


def programs() -> dict[str, str]:
    """The Python code that ranks run, by page: its blocks one after another, in one namespace."""
    pages: dict[str, str] = {}
    for block in PYTHON_BLOCKS:
        if block.page in (*PROGRAMS, *QUOTED) or block.key in LISTED_PYTHON:
            continue
        pages[block.page] = pages.get(block.page, "") + BEFORE.get(block.key, "") + block.text
    return {page: code + AFTER.get(page, "") for page, code in pages.items()}


needs_al = pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")


@needs_al
@pytest.mark.parametrize("page", pages_to_run())
def test_commands_of_a_page_run(page, tmp_path):
    if any(command.startswith("altorch plot") for command in pages_to_run()[page]):
        pytest.importorskip("matplotlib")
    if page == "docs/simulate.md" and not hasattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS"):
        pytest.skip(f"the flight recorder of torch {torch.__version__} records no other backends")
    for name, module in (("torchrun", "torch.distributed.run"), ("altorch", "altorch"), ("python", "")):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module and "-m " + module} "$@"\n')
        tool.chmod(0o755)
    if page in PROGRAMS:
        (block,) = [block for block in PYTHON_BLOCKS if block.page == page]
        (tmp_path / PROGRAMS[page]).write_text(block.text)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    for command in pages_to_run()[page]:
        # torchrun reads its options from PET_*, and would take the same port in each test.
        env = clean_environment({"PATH": path, "PET_MASTER_PORT": str(free_port())})
        more = next((words for start, words in SHORTENED.items() if start in command), "")
        done = subprocess.run(
            ["sh", "-c", f"{command} {more}"],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=PROGRAM_DEADLINE,
            check=False,
        )
        assert done.returncode == 0, f"{page}: {command}\n{done.stdout}{done.stderr}"
        if command.endswith("first.py"):  # the page shows what the ranks print, in any order
            (shown,) = [block.text for block in ALL if block.page == page and block.language == "text"]
            assert all(line in done.stdout for line in shown.splitlines()), done.stdout


def run_code(world, page, code):
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    if dist.is_initialized():
        dist.destroy_process_group()


@needs_al
@pytest.mark.parametrize("page", programs())
def test_python_code_of_a_page_runs(page):
    if page == "docs/tuning.md" and torch.__version__ < "2.15":
        pytest.skip(f"torch {torch.__version__} has time estimates for NCCL alone")
    with Cluster(2, group=False, launcher="plain") as cluster:
        cluster.check(run_code, page=page, code=programs()[page], deadline=60)


def test_what_is_listed_is_on_a_page():
    texts = [command for _, command in COMMANDS]
    assert not [
        pattern for pattern in LISTED_COMMANDS if not any(re.fullmatch(pattern, text) for text in texts)
    ]
    keys = {block.key for block in PYTHON_BLOCKS}
    assert not (LISTED_PYTHON.keys() | BEFORE.keys()) - keys
    assert not {*AFTER, *QUOTED, *PROGRAMS} - {block.page for block in PYTHON_BLOCKS}


def test_a_reason_names_tests_that_exist():
    reasons = " ".join([*LISTED_COMMANDS.values(), *LISTED_PYTHON.values()])
    named = set(re.findall(r"test_\w+\.py", reasons))
    assert named and not [name for name in named if not (REPOSITORY / "tests/python" / name).exists()]


def test_python_code_that_is_quoted_is_in_the_sources():
    for block in PYTHON_BLOCKS:
        compile(block.text, block.page, "exec")
        if block.page in QUOTED:
            sources = "".join(path.read_text() for path in (REPOSITORY / QUOTED[block.page]).rglob("*.py"))
            assert not [line for line in block.text.splitlines() if line not in sources], block.key


@pytest.mark.parametrize("command", sorted({command for _, command in COMMANDS}))
def test_a_command_names_what_exists(command):
    words = shlex.split(command)
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words.pop(0)
    words = words[: words.index(">")] if ">" in words else words
    if "altorch" in words:
        build_parser().parse_args(words[words.index("altorch") + 1 :])
    if words[:1] == ["make"]:
        makefile = (REPOSITORY / "Makefile").read_text()
        for word in words[1:]:
            name = re.escape(word.partition("=")[0])
            pattern = rf"\b{name}\b *[?:]?=" if "=" in word else rf"^([\w-]+ )*{name}( [\w-]+)*:"
            assert re.search(pattern, makefile, re.MULTILINE), word
    if words[:2] == ["python", "-m"] and not words[2].startswith(("sglang", "vllm")):
        assert importlib.util.find_spec(words[2])
    files = [word for word in words if re.match(r"(\./)?(tests|examples|benchmarks)/", word)]
    assert all((REPOSITORY / file).exists() for file in files)
