# Everything a person or CI does here has a name; `make help` lists them.
# PYTHON is the interpreter that the environments are made with, ARGS goes to pytest or to `inferq up`.

ARGS ?=

VENV := .venv
STACK := .venv-stack
BENCH := .venv-bench
BIN := $(VENV)/bin
BUILD := build
PIP_AUDIT_VERSION := 2.9.0
UV_VERSION := 0.13.9

# An environment that is there stays with its own interpreter, until PYTHON names another one.
ifndef PYTHON
PYTHON := $(shell made_with=$$(sed -n 's/^executable = //p' $(VENV)/pyvenv.cfg 2>/dev/null); \
	test -x "$$made_with" && echo "$$made_with" || echo python3)
endif

# The stamp's name holds the Python version, so that another version makes the environments anew.
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo none)
TOOLS_READY := $(VENV)/.ready-$(PYTHON_VERSION)
PRODUCT_READY := $(VENV)/.product-$(PYTHON_VERSION)
STACK_READY := $(STACK)/.ready-$(PYTHON_VERSION)
BENCH_READY := $(BENCH)/.ready-$(PYTHON_VERSION)

# Exactly what the lock says, checked against its hashes; wheels only, so nothing is compiled or run while installing.
INSTALL := -m pip install -qq --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r

MAKEFLAGS += --no-builtin-rules --no-print-directory
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

##@ Run
.PHONY: demo
demo: $(PRODUCT_READY) $(STACK_READY) ## Start everything, classify a photo, print the label, stop
	@$(BIN)/inferq demo

.PHONY: up
up: $(PRODUCT_READY) $(STACK_READY) ## Start everything and keep it running until Ctrl-C
	@$(BIN)/inferq up $(ARGS)

.PHONY: setup
setup: $(PRODUCT_READY) $(STACK_READY) ## Make both environments; the other targets do so when they have to
	@:

##@ Check
.PHONY: test
test: $(PRODUCT_READY) $(STACK_READY) ## Run all tests but those in a browser (ARGS='-k words' runs some)
	@$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

.PHONY: test-failure
test-failure: $(PRODUCT_READY) $(STACK_READY) ## Run those that kill, freeze and cut off real processes
	@$(BIN)/pytest tests/failure $(ARGS)

.PHONY: test-browser
test-browser: $(PRODUCT_READY) $(STACK_READY) ## Run those in a real browser, which `make test` leaves out (needs Chromium)
	@$(BIN)/pytest -m browser tests/browser $(ARGS)

.PHONY: soak
soak: $(PRODUCT_READY) ## Make 100,000 engine calls and see that nothing grows; minutes, and no part of `make test`
	@$(BIN)/pytest -q -s tests/soak/soak_engine_calls.py

.PHONY: lint
lint: $(PRODUCT_READY) ## Judge style, import arrows and the Dockerfile
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/hadolint deploy/Dockerfile

.PHONY: type
type: $(PRODUCT_READY) ## Check types, strictly
	@$(BIN)/mypy
	@for model in deploy/triton/models/*/*/model.py; do $(BIN)/mypy --no-error-summary $$model; done

.PHONY: bench
bench: $(BENCH_READY) $(STACK_READY) ## Measure inferq beside its alternatives, in ten minutes (ARGS='growth': how costs grow)
	@$(BENCH)/bin/python -m bench $(ARGS)

.PHONY: bench-smoke
bench-smoke: $(BENCH_READY) $(STACK_READY) ## Run all of `make bench` with next to no jobs: proves that it works
	@mkdir -p $(BUILD)
	@$(BENCH)/bin/python -m mypy --no-error-summary bench
	@$(BENCH)/bin/python -m bench smoke >$(BUILD)/bench-smoke.log 2>&1 || { cat $(BUILD)/bench-smoke.log >&2; exit 1; }

# Each line proves one thing that is written down twice.
.PHONY: verify
verify: $(PRODUCT_READY) ## Prove that generated files and locks are fresh
	@$(BIN)/python -m pip check -q --disable-pip-version-check
	@$(BIN)/python tools/verify_locks.py
	@$(call stubs,$(BUILD)/proto)
	@diff -r --exclude=__init__.py --exclude=__pycache__ $(BUILD)/proto/workers/triton/pb workers/triton/pb \
		|| { echo "the stubs are stale: run 'make proto' and commit what it changes" >&2; exit 1; }

.PHONY: fuzz
fuzz: $(PRODUCT_READY) ## Feed every parser damaged bodies for a minute each (FUZZ_SECONDS=600 for longer)
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) $(BIN)/pytest tests/threats/test_fuzz.py $(ARGS)

.PHONY: audit
audit: $(BUILD)/audit/.ready-$(PIP_AUDIT_VERSION) ## Ask for known holes in what is locked; says so where nobody can be asked
	@$(BUILD)/audit/bin/python tools/audit.py $(BUILD)/audit/bin/pip-audit

##@ Change
.PHONY: fmt
fmt: $(PRODUCT_READY) ## Format the code and mend what can be mended
	@$(BIN)/ruff check --quiet --fix-only
	@$(BIN)/ruff format --quiet

# protoc is told that the file lives where its stubs go: they import each other by that path, and protobuf's
# process-wide registry knows the file by a name that nobody else uses.
define stubs
mkdir -p $(1) && $(BIN)/python -m grpc_tools.protoc -I workers/triton/pb=proto \
	--python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) workers/triton/pb/inference.proto
endef

.PHONY: proto
proto: $(PRODUCT_READY) ## Generate the stubs from proto/inference.proto
	@$(call stubs,.)

COMPILE = $(BUILD)/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--only-binary :all: --generate-hashes --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

.PHONY: lock
lock: $(BUILD)/uv/.ready-$(UV_VERSION) ## Pin what pyproject.toml asks for (UPGRADE=1 takes the newest)
	@$(COMPILE) pyproject.toml -o requirements/runtime.lock
	@$(BUILD)/uv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		| $(COMPILE) - -o requirements/build.lock
	@$(COMPILE) pyproject.toml --extra dev --extra heif -c requirements/runtime.lock -o requirements/dev.lock
	@$(COMPILE) requirements/bench.in -c requirements/dev.lock -o requirements/bench.lock
	@$(COMPILE) --override deploy/embedded/overrides.txt deploy/embedded/requirements.in \
		-o deploy/embedded/requirements.lock

##@ Keep
.PHONY: clean
clean: ## Remove environments, caches and build output; data stays
	@rm -rf $(VENV) $(STACK) $(BENCH) $(BUILD) dist *.egg-info .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

define check_python
command -v $(PYTHON) >/dev/null || { echo "inferq needs Python 3.11, 3.12 or 3.13, and $(PYTHON) isn't here" >&2; exit 1; }
$(PYTHON) tools/check_python.py
endef

$(TOOLS_READY): requirements/build.lock requirements/dev.lock
	@$(check_python)
	@echo "Setting up $(VENV) with Python $(PYTHON_VERSION): the product and its tools, about a minute …"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(INSTALL) requirements/build.lock -r requirements/dev.lock
	@touch $@

$(PRODUCT_READY): $(TOOLS_READY) pyproject.toml
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(STACK_READY): deploy/embedded/requirements.lock
	@$(check_python)
	@echo "Setting up $(STACK) with Python $(PYTHON_VERSION): Triton, ONNX Runtime and Valkey, about a minute (160 MB) …"
	@rm -rf $(STACK)
	@$(PYTHON) -m venv $(STACK)
	@$(STACK)/bin/python $(INSTALL) deploy/embedded/requirements.lock
	@touch $@

# Peers and plots alone; everything else is found in the product's own environment, through the .pth file.
$(BENCH_READY): requirements/bench.lock | $(PRODUCT_READY)
	@echo "Setting up $(BENCH) with Python $(PYTHON_VERSION): what inferq is measured beside, half a minute …"
	@rm -rf $(BENCH)
	@$(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python $(INSTALL) requirements/bench.lock
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		>"$$($(BENCH)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/product.pth"
	@touch $@

$(BUILD)/audit/.ready-$(PIP_AUDIT_VERSION):
	@$(PYTHON) -m venv --clear $(BUILD)/audit
	@$(BUILD)/audit/bin/python -m pip install -qq --disable-pip-version-check pip-audit==$(PIP_AUDIT_VERSION)
	@touch $@

$(BUILD)/uv/.ready-$(UV_VERSION):
	@$(PYTHON) -m venv --clear $(BUILD)/uv
	@$(BUILD)/uv/bin/python -m pip install -qq --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@
