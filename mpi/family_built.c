/* Determines the family of the MPI whose mpicc compiles this file. The ABI defines the type MPI_Comm, which identifies
 * the family. */
#include <mpi.h>

#include "family.h"

struct ompi_communicator_t;
struct MPI_ABI_Comm;

const enum mpi_family mpi_family_built = _Generic((MPI_Comm)0,
    int: FAMILY_MPICH,
    struct ompi_communicator_t *: FAMILY_OPEN_MPI,
    struct MPI_ABI_Comm *: FAMILY_STANDARD,
    default: FAMILY_UNKNOWN);
