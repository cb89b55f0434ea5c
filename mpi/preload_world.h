/*
 * The interface between libturbidite_preload_mpi.so, which is preloaded, and libturbidite_preload_world.so, which is
 * linked to MPI. Both are built together, for one MPI. The former does not use MPI's types.
 */
#ifndef TURBIDITE_PRELOAD_WORLD_H
#define TURBIDITE_PRELOAD_WORLD_H

#include "bindings.h"

/* The functions that libturbidite_preload_world.so exports as `turbidite_preload_world`. MPI calls made by these
 * functions must not be reported. */
struct preload_world {
    /* Starts indexing if MPI has been initialised. Returns whether to call the other functions from now on. */
    int (*start)(void);
    /* Report that the program is about to enter a collective. */
    void (*report)(mpi_handle communicator);
    void (*report_fortran)(int communicator);
    /* Ends indexing before MPI is finalised. */
    void (*finish)(void);
};

#endif
