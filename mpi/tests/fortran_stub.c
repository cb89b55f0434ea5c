/*
 * Replaces an MPI's Fortran bindings, which a machine without gfortran lacks. Real bindings call MPI_X (MPICH's mpif.h)
 * or PMPI_X (Open MPI's, and MPICH's mpi_f08). ENDS_IN determines which of the two these bindings call.
 */
#include <stddef.h>

#include <mpi.h>

#define JOINED(prefix, name) prefix##name
#define CALL(prefix, name) JOINED(prefix, name)
#define EXPORTED __attribute__((visibility("default")))

EXPORTED void mpi_init_(MPI_Fint *error)
{
    *error = CALL(ENDS_IN, Init)(NULL, NULL);
}

EXPORTED void mpi_finalize_(MPI_Fint *error)
{
    *error = CALL(ENDS_IN, Finalize)();
}

EXPORTED void mpi_barrier_(MPI_Fint *communicator, MPI_Fint *error)
{
    *error = CALL(ENDS_IN, Barrier)(MPI_Comm_f2c(*communicator));
}

EXPORTED void mpi_bcast_(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *communicator,
                         MPI_Fint *error)
{
    *error = CALL(ENDS_IN, Bcast)(buffer, *count, MPI_Type_f2c(*type), *root, MPI_Comm_f2c(*communicator));
}

EXPORTED void mpi_allreduce_(void *from, void *to, MPI_Fint *count, MPI_Fint *type, MPI_Fint *operation,
                             MPI_Fint *communicator, MPI_Fint *error)
{
    *error = CALL(ENDS_IN, Allreduce)(from, to, *count, MPI_Type_f2c(*type), MPI_Op_f2c(*operation),
                                      MPI_Comm_f2c(*communicator));
}

EXPORTED void mpi_barrier_f08_(MPI_Fint *communicator, MPI_Fint *error)
{
    *error = CALL(ENDS_IN, Barrier)(MPI_Comm_f2c(*communicator));
}
