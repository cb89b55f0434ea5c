/*
 * Turbidite over MPI: creates the transport of turbidite.h from a communicator.
 *
 *     turbidite_transport *transport;
 *     if (turbidite_mpi_open(MPI_COMM_WORLD, &transport) != TURBIDITE_OK)
 *         fprintf(stderr, "%s\n", turbidite_mpi_last_error());
 *     turbidite_open("particles.tbd", columns, 2, "energy", NULL, transport, &dataset);
 *     ...
 *     turbidite_close(dataset);
 *     turbidite_mpi_close(transport);
 *     MPI_Finalize();
 *
 * MPI belongs to the program: nothing here initialises, finalises or aborts it, and all messages stay on a duplicate of
 * the communicator. MPI_THREAD_FUNNELED suffices; below MPI_THREAD_SERIALIZED, open, close and all use of the transport
 * must happen on the thread that initialised MPI.
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

/* Opens a transport between all ranks of an intracommunicator. Collective over it. Returns TURBIDITE_OK, or
 * TURBIDITE_USAGE or TURBIDITE_FAILED and leaves `*transport` NULL. A failure of one rank alone (memory) fails on every
 * rank. */
TURBIDITE_MPI_API int turbidite_mpi_open(MPI_Comm communicator, turbidite_transport **transport);

/* An INTEGER of Fortran; MPI 5's ABI has no C type for it. */
#ifdef MPI_ABI_VERSION
typedef int turbidite_mpi_fint;
#else
typedef MPI_Fint turbidite_mpi_fint;
#endif

/* The same for a communicator of Fortran: called by turbidite_mpi.f90. */
TURBIDITE_MPI_API int turbidite_mpi_open_fortran(turbidite_mpi_fint communicator, turbidite_transport **transport);

/* Frees the transport. Collective over its ranks, which may still poll or be in this call; before MPI_Finalize. Sends
 * in flight are completed, messages that were not polled are dropped, and lent messages become invalid. NULL is
 * allowed. Returns TURBIDITE_FAILED if the transport had failed on any rank; it is freed nevertheless, except for
 * memory that MPI may still use: then keep the memory of sends that were not `completed` until MPI_Finalize.
 *
 * After a call on a dataset over this transport has failed because ranks have lost each other (stall_s, or an MPI
 * error), this waits for no rank and returns TURBIDITE_FAILED at once. End the program with MPI_Abort then:
 * MPI_Finalize waits for every rank, for ever if one is gone. */
TURBIDITE_MPI_API int turbidite_mpi_close(turbidite_transport *transport);

/* Returns why the last open or close of this thread failed. Valid until its next one. Never NULL. */
TURBIDITE_MPI_API const char *turbidite_mpi_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* TURBIDITE_MPI_H */
