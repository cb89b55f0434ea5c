/*
 * Turbidite over MPI: creates the transport of turbidite.h from a communicator.
 *
 *     turbidite_transport *transport;
 *     if (turbidite_mpi_open(MPI_COMM_WORLD, &transport) != TURBIDITE_OK
 *         || turbidite_open("particles.tbd", columns, 2, "energy", NULL, transport, &dataset) != TURBIDITE_OK)
 *         MPI_Abort(MPI_COMM_WORLD, 1);
 *     ...
 *     turbidite_close(dataset);
 *     turbidite_mpi_close(transport);
 *     MPI_Finalize();
 *
 * The functions never initialise, finalise or abort MPI. All messages are sent on a duplicate of the communicator.
 * MPI_THREAD_FUNNELED suffices. Below MPI_THREAD_SERIALIZED, open, close and all use of the transport must be on the
 * thread that initialised MPI.
 *
 * For tests of several nodes on one host, two variables in the environment of rank 0 replace the nodes that MPI finds:
 * TURBIDITE_NODES="0,0,1,1" (one number per rank) or TURBIDITE_RANKS_PER_NODE=2.
 */
#ifndef TURBIDITE_MPI_H
#define TURBIDITE_MPI_H

#include <mpi.h>

#include "turbidite.h"

#if defined(__GNUC__)
#define TURBIDITE_MPI_API __attribute__((visibility("default")))
#else
#define TURBIDITE_MPI_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a transport between all ranks of an intracommunicator. Collective over the communicator. Returns TURBIDITE_OK;
 * or TURBIDITE_USAGE or TURBIDITE_FAILED, and sets `*transport` to NULL. If one rank fails, for example for lack of
 * memory, the call fails on every rank. */
TURBIDITE_CHECKED TURBIDITE_MPI_API int turbidite_mpi_open(MPI_Comm communicator, turbidite_transport **transport);

/* A Fortran INTEGER, for which MPI 5's ABI has no C type. */
#ifdef MPI_ABI_VERSION
typedef int turbidite_mpi_fint;
#else
typedef MPI_Fint turbidite_mpi_fint;
#endif

/* Opens a transport for a Fortran communicator. Called by turbidite_mpi.f90. */
TURBIDITE_MPI_API int turbidite_mpi_open_fortran(turbidite_mpi_fint communicator, turbidite_transport **transport);

/* Frees the transport. Collective over its ranks. Must be called before MPI_Finalize. Sends in flight are completed,
 * messages that were not polled are dropped, and lent messages become invalid. NULL is allowed. Returns
 * TURBIDITE_FAILED if the transport has failed on any rank. The transport is then freed as well, except for memory that
 * MPI may still use. In this case, keep the memory of sends that were not `completed` until MPI_Finalize.
 *
 * If a call on a dataset over this transport has failed because ranks can no longer reach each other (stall_s, or an
 * MPI error), this function waits for no rank and returns TURBIDITE_FAILED immediately. End the program with MPI_Abort
 * then: MPI_Finalize waits for every rank, and never returns if one is missing. */
TURBIDITE_CHECKED TURBIDITE_MPI_API int turbidite_mpi_close(turbidite_transport *transport);

/* Returns the reason why this thread's last open or close failed, as turbidite_last_error does, to programs that do not
 * load libturbidite. Valid until this thread's next open or close. Never NULL. */
TURBIDITE_MPI_API const char *turbidite_mpi_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* TURBIDITE_MPI_H */
