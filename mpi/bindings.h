/*
 * The functions of the MPI that the program runs with, found by name. libturbidite_preload_mpi.so is not linked to an
 * MPI and does not depend on MPI's types.
 */
#ifndef TURBIDITE_BINDINGS_H
#define TURBIDITE_BINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "family.h"

/* An MPI handle as passed in a register or on the stack. In MPICH it is an int, whose undefined upper half is passed on
 * unchanged. In other MPIs it is a pointer. Both occupy eight bytes on all 64-bit ABIs of Linux. */
typedef uintptr_t mpi_handle;

/* The running MPI. */
struct running_mpi {
    enum mpi_family family;
    /* The first line of MPI_Get_library_version, with each run of blanks reduced to one. Empty for an MPI without that
     * function. */
    char version[256];
};

/* Returns the next function of this name in the load order, for a call from `caller`. Ends the process if there is
 * none. */
void *next_binding(const char *name, void *caller);

/* Identifies the running MPI, after MPI has been initialised. */
struct running_mpi running_mpi(void);

/* Returns whether this is rank 0 of MPI_COMM_WORLD, or true if the rank cannot be determined. MPI must be
 * initialised. */
bool is_first_rank(const struct running_mpi *mpi);

#endif
