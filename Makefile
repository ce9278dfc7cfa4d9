# make up     a small cluster on this machine, with the Services of examples/
# make test   everything that is tested, in minutes
# make test-release   the long forms too: every command of docs/, the whole image, Debian's kernel in qemu, fuzzing
# make release   what a release has, in dist/
# make check  style and types
# make bench  the measurements, into docs/benchmarks.md; CASE=NAME for one of them
# make docs   the pages as a site, in build/docs
# make schema the data of kdns/controlplane/schema, from the OpenAPI of a Kubernetes release
# make reference the pages of docs/reference, the manual pages and the drawing of the rooms, from the code
# make mode-table the table of docs/modes.md, from the rows of the modes

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# What tests start compiles kdns once, not in each process.
export PYTHONDONTWRITEBYTECODE :=
UP ?= examples
JOBS ?= auto

.PHONY: up test test-release release check bench docs schema reference mode-table venv clean

up: $(VENV)/ready
	$(BIN)/kdns up $(UP)

test: $(VENV)/ready-dev
	tests/install-debian-packages
	$(BIN)/pytest -n $(JOBS) --dist worksteal

test-release: $(VENV)/ready-dev
	tests/install-debian-packages
	-tests/install-debian-packages modprobe=kmod qemu-system-x86_64=qemu-system-x86 && tests/kernel/unpack-debian-kernel
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "" --hypothesis-profile=release

release: $(VENV)/ready-dev
	$(BIN)/python -m tools.release

check: $(VENV)/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/ready-dev
	$(BIN)/python bench/suite.py $(CASE)

docs: $(VENV)/ready-dev
	$(BIN)/sphinx-build -q -W --keep-going -c docs . build/docs
	@echo build/docs/docs/index.html

schema: $(VENV)/ready-dev
	$(BIN)/python -m tools.schema.generate

reference: $(VENV)/ready-dev
	$(BIN)/python -m tools.reference

venv: $(VENV)/ready-dev

# Both anew whenever a dependency changes. What runs needs less than what tests.
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -m tools.environment $(VENV)
	@touch $@

$(VENV)/ready-dev: pyproject.toml constraints.txt
	@$(PYTHON) -m tools.environment $(VENV) dev
	@touch $(VENV)/ready $@

mode-table: $(VENV)/ready-dev
	$(BIN)/python -m tools.mode_table

clean:
	rm -rf $(VENV) .kernel build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
