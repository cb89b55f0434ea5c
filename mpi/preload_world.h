/*
 * The interface between libturbidite_preload_mpi.so, which is preloaded, and libturbidite_preload_world.so, which is
 * linked to MPI. Both are built together, for one MPI; the former does not use MPI's types.
 */
#ifndef TURBIDITE_PRELOAD_WORLD_H
#define TURBIDITE_PRELOAD_WORLD_H

#include "bindings.h"

/* The latter exports one of these, `turbidite_preload_world`. Its own MPI calls must not be reported. */
struct preload_world {
    /* MPI may have started. Returns whether to call the other functions from now on. */
    int (*start)(void);
    /* The program is about to enter a collective. */
    void (*report)(mpi_handle communicator);
    void (*report_fortran)(int communicator);
    /* MPI is about to end. */
    void (*finish)(void);
};

#endif
