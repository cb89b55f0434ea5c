/*
 * Initialises and finalises MPI, with a transport over all ranks, for programs that may be started by mpiexec but do
 * not use MPI otherwise, such as the `turbidite` command. These programs load this library only if mpiexec has started
 * them.
 */
#include "turbidite_mpi.h"

/* Initialises MPI and opens a transport over MPI_COMM_WORLD. Returns NULL if either fails; turbidite_mpi_last_error()
 * returns the reason. */
TURBIDITE_MPI_API turbidite_transport *turbidite_mpi_world_begin(void)
{
    turbidite_transport *transport = NULL;
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return NULL;
    return turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK ? transport : NULL;
}

/* Opens a further transport over MPI_COMM_WORLD, for an index. Collective. Returns NULL if that fails;
 * turbidite_mpi_last_error() returns the reason. */
TURBIDITE_MPI_API turbidite_transport *turbidite_mpi_world_connect(void)
{
    turbidite_transport *transport = NULL;
    return turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK ? transport : NULL;
}

/* Closes a transport of turbidite_mpi_world_connect. Collective. */
TURBIDITE_MPI_API int turbidite_mpi_world_disconnect(turbidite_transport *transport)
{
    return turbidite_mpi_close(transport);
}

/* Closes the transport of turbidite_mpi_world_begin and finalises MPI. Collective. */
TURBIDITE_MPI_API int turbidite_mpi_world_end(turbidite_transport *transport)
{
    int status = turbidite_mpi_close(transport);
    return MPI_Finalize() == MPI_SUCCESS ? status : TURBIDITE_FAILED;
}
