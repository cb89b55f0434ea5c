/*
 * The interface between libturbidite_preload_mpi.so (C, compiled with the site's mpicc) and libturbidite_preload.so (no
 * MPI). Both are preloaded. The former finds the functions of the latter by name and does nothing at all without them.
 */
#ifndef TURBIDITE_PRELOAD_H
#define TURBIDITE_PRELOAD_H

#include <stddef.h>
#include <stdint.h>

#include "turbidite.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Agreement between all ranks: every rank calls the same function with the same count, and each value is replaced by
 * the minimum, or the sum, of that value over all ranks. Blocks. Returns 0, or a negative number. */
typedef struct turbidite_agreement {
    uint32_t struct_size; /* sizeof(turbidite_agreement) */
    void *context;        /* passed to every function */
    int32_t (*minimum)(void *context, int64_t *values, size_t count);
    int32_t (*sum)(void *context, int64_t *values, size_t count);
    /* Opens a separate transport for one dataset: two datasets on one transport would receive each other's messages.
     * Collective. Returns NULL on every rank if none is available; the reason has been reported. Stays valid as long as
     * the first transport. */
    const turbidite_transport *(*connect)(void *context);
} turbidite_agreement;

/* MPI has been initialised. Called on every rank, once; both arguments stay valid until
 * turbidite_preload_before_finalize returns. */
void turbidite_preload_mpi_started(const turbidite_transport *transport, const turbidite_agreement *agreement);

/* MPI has been initialised, but the former library cannot use it, and has reported why. Called on every rank instead of
 * turbidite_preload_mpi_started; nothing else is called after it. */
void turbidite_preload_mpi_refused(void);

/* The program is about to enter a collective over all ranks, so every rank is here or will arrive: our own protocols
 * may run now. MPI calls made inside are not reported. */
void turbidite_preload_at_collective(void);

/* The program has called MPI_Finalize on every rank; MPI still works. */
void turbidite_preload_before_finalize(void);

/* The program has called MPI_Abort on this rank, on any thread: communication with other ranks is no longer
 * possible. */
void turbidite_preload_before_abort(void);

#ifdef __cplusplus
}
#endif

#endif /* TURBIDITE_PRELOAD_H */
