/*
 * The interface between libturbidite_preload_mpi.so (C, compiled with the site's mpicc) and libturbidite_preload.so (no
 * MPI). Both are preloaded. The former finds the functions of the latter by name, and only forwards MPI's calls if they
 * are absent.
 */
#ifndef TURBIDITE_PRELOAD_H
#define TURBIDITE_PRELOAD_H

#include <stddef.h>
#include <stdint.h>

#include "turbidite.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions for agreement between all ranks. Every rank calls the same function with the same count. `minimum` and
 * `sum` replace each value by its minimum or sum over all ranks. They block, and return 0 or a negative number. */
typedef struct turbidite_agreement {
    uint32_t struct_size; /* sizeof(turbidite_agreement) */
    void *context;        /* passed to every function */
    int32_t (*minimum)(void *context, int64_t *values, size_t count);
    int32_t (*sum)(void *context, int64_t *values, size_t count);
    /* Opens a separate transport for one dataset, since two datasets on one transport would receive each other's
     * messages. Collective. Returns NULL on every rank if no transport is available; the reason has then been reported.
     * The transport is valid as long as the first transport. */
    const turbidite_transport *(*connect)(void *context);
} turbidite_agreement;

/* Begins indexing after MPI has been initialised. Called once on every rank. Both arguments are valid until
 * turbidite_preload_before_finalize returns. */
void turbidite_preload_mpi_started(const turbidite_transport *transport, const turbidite_agreement *agreement);

/* Stops indexing, since libturbidite_preload_mpi.so cannot use MPI. The reason has been reported. Called on every rank
 * instead of turbidite_preload_mpi_started. No other function is called afterwards. */
void turbidite_preload_mpi_refused(void);

/* Indexes complete epochs. Called when the program is about to enter a collective over all ranks: every rank makes this
 * call, so that our own protocols may run. MPI calls made inside are not reported. */
void turbidite_preload_at_collective(void);

/* Ends indexing. Called when the program has called MPI_Finalize on every rank, while MPI can still be used. */
void turbidite_preload_before_finalize(void);

/* Ends indexing on this rank. Called when the program has called MPI_Abort on any of the rank's threads. Ranks must no
 * longer communicate. */
void turbidite_preload_before_abort(void);

#ifdef __cplusplus
}
#endif

#endif /* TURBIDITE_PRELOAD_H */
