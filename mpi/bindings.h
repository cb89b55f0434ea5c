/*
 * The MPI that the program runs with, found by name: no part of libturbidite_preload_mpi.so is linked to an MPI or
 * depends on its types.
 */
#ifndef TURBIDITE_BINDINGS_H
#define TURBIDITE_BINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "family.h"

/* A handle of MPI as passed in a register or on the stack: an int in MPICH, whose upper half is whatever the caller
 * left there and is passed on, or a pointer in the others. Each takes a slot of eight bytes on all 64-bit ABIs of
 * Linux. */
typedef uintptr_t mpi_handle;

/* The running MPI. */
struct running_mpi {
    enum mpi_family family;
    /* The first line of MPI_Get_library_version, with blanks squeezed; empty for an MPI without that function. */
    char version[256];
};

/* Returns the binding behind ours, for a name called from `caller`. Ends the process if there is none. */
void *next_binding(const char *name, void *caller);

/* Identifies the running MPI, once its start has been passed on. */
struct running_mpi running_mpi(void);

/* Returns whether this is rank 0 of MPI_COMM_WORLD, or the rank cannot be determined. MPI has started. */
bool is_first_rank(const struct running_mpi *mpi);

#endif
