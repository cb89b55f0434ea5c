import os

# Only an MPI with a Fortran compiler can run them; make test-openmpi says which one has.
collect_ignore_glob = [] if os.environ.get("TURBIDITE_MPI_FORTRAN") else ["test_mpi_fortran.py"]
