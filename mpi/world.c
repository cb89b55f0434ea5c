/*
 * For programs that are not written for MPI but may be started by mpiexec, such as the `turbidite` command: begins and
 * ends MPI around a transport over all ranks. Such programs load this library when they find themselves started by
 * mpiexec, and need no MPI otherwise.
 */
#include "turbidite_mpi.h"

/* Begins MPI and opens a transport over MPI_COMM_WORLD. Returns NULL if either fails; turbidite_mpi_last_error()
 * returns the reason. */
TURBIDITE_MPI_API turbidite_transport *turbidite_mpi_world_begin(void)
{
    turbidite_transport *transport = NULL;
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return NULL;
    return turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK ? transport : NULL;
}

/* Ends what turbidite_mpi_world_begin began. Collective. */
TURBIDITE_MPI_API int turbidite_mpi_world_end(turbidite_transport *transport)
{
    int status = turbidite_mpi_close(transport);
    return MPI_Finalize() == MPI_SUCCESS ? status : TURBIDITE_FAILED;
}
