/*
 * libturbidite_preload_mpi.so, the MPI shim. It notifies libturbidite_preload.so, which is independent of MPI, when MPI
 * has been initialised, when the program is about to enter a collective over all its ranks, and when it is about to
 * finalise MPI. Without libturbidite_preload.so every call passes through.
 *
 * The shim is not linked to MPI. It looks up MPI's functions by name when they are first called, so that processes
 * without MPI do not load an MPI library: loading takes many times as long as a small program runs. The code that makes
 * MPI calls of its own is in libturbidite_preload_world.so beside the shim. That library is loaded when MPI has been
 * initialised and belongs to the family that the library was built for. The shim includes no mpi.h and forwards the
 * calls of any MPI. It passes handles as pointer-sized integers.
 *
 * C calls are intercepted through MPI's profiling interface: MPI_X is defined here, and PMPI_X in MPI or in a tool that
 * follows in the load order. A tool that precedes the shim, such as Darshan, passes initialisation and finalisation to
 * PMPI_X. MPI_Init, MPI_Init_thread and MPI_Finalize are therefore wrapped under both names.
 *
 * Fortran bindings are wrapped separately, since they differ: MPICH's bindings call MPI_X for mpif.h and `use mpi`, and
 * PMPI_X for most of `use mpi_f08`. Open MPI's bindings always call PMPI_X. A Fortran call is therefore reported on
 * entry and passed to the next function of the same name, since only the binding knows the representation of
 * MPI_IN_PLACE and of descriptors. `depth` prevents a second report if the binding calls MPI_X, and reports of our own
 * calls.
 *
 * Only calls on the thread that initialised MPI are reported, since only that thread may use the transport.
 *
 * The wrapped functions are the collectives in which all ranks may be made to wait for each other. According to the MPI
 * standard, these may synchronise. Not wrapped are:
 * - nonblocking (MPI_Ibarrier) and persistent collectives. Starting such a collective must not wait for other ranks:
 *   rank 0 may start it and then receive a message that rank 1 sends before it starts the collective. Ranks may
 *   complete these collectives in different orders.
 * - neighbourhood collectives. In MPI a rank may continue once its neighbours have arrived, and programs may rely on
 *   this.
 * - collectives that create or free communicators, windows and files, which programs call during their setup. If a
 *   program calls no other collectives, its files are indexed when it finalises MPI.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings.h"
#include "preload_world.h"

#define EXPORTED __attribute__((visibility("default")))
/* A preloaded library's thread-local variables may have fixed offsets from the thread pointer, so that one load reads
 * them. */
#define PER_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

/* The functions of libturbidite_preload_world.so, after MPI has been initialised. */
static const struct preload_world *world;
/* Whether indexing is active. Read on any thread. */
static atomic_bool running;
/* Whether indexing is active and this thread initialised MPI. */
static PER_THREAD bool active;
/* Number of wrapped calls that this thread is currently in. */
static PER_THREAD int depth;

/* Returns the folder of this library and of libturbidite_preload_world.so, with a trailing slash, or an empty string if
 * it is unknown. */
static const char *own_folder(void)
{
    static char folder[PATH_MAX];
    Dl_info us;
    const char *end = dladdr(&world, &us) == 0 ? NULL : strrchr(us.dli_fname, '/');
    if (end != NULL && end - us.dli_fname + 2 <= PATH_MAX)
        snprintf(folder, sizeof folder, "%.*s", (int)(end - us.dli_fname + 1), us.dli_fname);
    return folder;
}

/* Loads libturbidite_preload_world.so from this library's folder. */
static const struct preload_world *load_world(void)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%slibturbidite_preload_world.so", own_folder());
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct preload_world *loaded = handle == NULL ? NULL : dlsym(handle, "turbidite_preload_world");
    if (loaded == NULL)
        fprintf(stderr, "turbidite: nothing is indexed: %s\n", dlerror());
    return loaded;
}

/* Reports on one rank that the program runs with an MPI of another family than the libraries were built for. */
static void explain_family(const struct running_mpi *mpi)
{
    if (!is_first_rank(mpi))
        return;
    fprintf(stderr,
            "turbidite: nothing is indexed: %slibturbidite_preload_mpi.so was built for the ABI of %s, and this "
            "program runs with that of %s (%s); build it with the program's mpicc: make install PREFIX=... MPICC=...\n",
            own_folder(), mpi_family_name(mpi_family_built), mpi_family_name(mpi->family),
            mpi->version[0] == '\0' ? "which does not state its version" : mpi->version);
}

/* Reports on one rank that libturbidite_preload.so is absent. */
static void explain_absence(const struct running_mpi *mpi)
{
    if (!is_first_rank(mpi))
        return;
    fprintf(stderr,
            "turbidite: nothing is indexed: libturbidite_preload_mpi.so is preloaded without libturbidite_preload.so; "
            "preload both: LD_PRELOAD=%slibturbidite_preload.so:%slibturbidite_preload_mpi.so\n",
            own_folder(), own_folder());
}

/* Loads and starts libturbidite_preload_world.so. Returns whether to call its other functions. */
static bool start_world(void)
{
    struct running_mpi mpi = running_mpi();
    if (dlsym(RTLD_DEFAULT, "turbidite_preload_mpi_started") == NULL) {
        explain_absence(&mpi);
        return false;
    }
    if (mpi.family != mpi_family_built)
        explain_family(&mpi);
    else if ((world = load_world()) != NULL && world->start())
        return true;
    /* The reason has been reported. Without this call, libturbidite_preload.so would ask the user to preload the
     * shim. */
    void (*refused)(void);
    *(void **)&refused = dlsym(RTLD_DEFAULT, "turbidite_preload_mpi_refused");
    if (refused != NULL)
        refused();
    return false;
}

/* Runs after the outermost call that initialises MPI. */
static void start(void)
{
    static bool begun;
    if (begun)
        return;
    begun = true;
    depth++;
    active = start_world();
    running = active;
    depth--;
}

/* Runs before the outermost call that finalises MPI. */
static void finish(void)
{
    depth++;
    active = running = false;
    world->finish();
    depth--;
}

/* Runs before MPI_Abort ends all ranks. This rank may never run its exit handlers, since the launcher kills it. */
static void before_abort(void)
{
    void (*tell)(void);
    if (depth > 0 || !running)
        return;
    *(void **)&tell = dlsym(RTLD_DEFAULT, "turbidite_preload_before_abort");
    if (tell != NULL)
        tell();
}

/* Reports a collective that the program is about to enter. */
static void report(mpi_handle communicator)
{
    if (depth++ == 0)
        world->report(communicator);
    depth--;
}

/* Defines `next`, the next function of this name in the load order, which has the same type. */
#define NEXT(name, result, parameters) \
    static result(*next) parameters;   \
    if (next == NULL)                  \
        *(void **)&next = next_binding(#name, __builtin_return_address(0))

/* ---- C ---- */

/* The value of MPI_SUCCESS in every MPI, which the standard defines. */
enum { SUCCESS = 0 };

/* Defines a wrapper of a function that initialises MPI, under one of its names. */
#define START(name, behind, parameters, arguments) \
    EXPORTED int name parameters                   \
    {                                              \
        NEXT(behind, int, parameters);             \
        depth++;                                   \
        int answer = next arguments;               \
        if (--depth == 0 && answer == SUCCESS) \
            start();                               \
        return answer;                             \
    }

#define FINISH(name)                      \
    EXPORTED int name(void)               \
    {                                     \
        NEXT(PMPI_Finalize, int, (void)); \
        if (active && depth == 0)         \
            finish();                     \
        depth++;                          \
        int answer = next();              \
        depth--;                          \
        return answer;                    \
    }

START(MPI_Init, PMPI_Init, (int *count, char ***arguments), (count, arguments))
START(PMPI_Init, PMPI_Init, (int *count, char ***arguments), (count, arguments))
START(MPI_Init_thread, PMPI_Init_thread, (int *count, char ***arguments, int required, int *provided),
      (count, arguments, required, provided))
START(PMPI_Init_thread, PMPI_Init_thread, (int *count, char ***arguments, int required, int *provided),
      (count, arguments, required, provided))
FINISH(MPI_Finalize)
FINISH(PMPI_Finalize)

EXPORTED int MPI_Abort(mpi_handle communicator, int code)
{
    NEXT(PMPI_Abort, int, (mpi_handle communicator, int code));
    before_abort();
    return next(communicator, code);
}

/* Defines a wrapper of a collective. The parameters and arguments are those of the MPI standard and include a
 * `communicator`. */
#define COLLECTIVE(name, parameters, arguments) \
    EXPORTED int MPI_##name parameters          \
    {                                           \
        NEXT(PMPI_##name, int, parameters);     \
        if (!active)                            \
            return next arguments;              \
        report(communicator);                   \
        depth++;                                \
        int answer = next arguments;            \
        depth--;                                \
        return answer;                          \
    }

COLLECTIVE(Barrier, (mpi_handle communicator), (communicator))
COLLECTIVE(Bcast, (void *buffer, int count, mpi_handle type, int root, mpi_handle communicator),
           (buffer, count, type, root, communicator))
COLLECTIVE(Reduce,
           (const void *from, void *to, int count, mpi_handle type, mpi_handle operation, int root,
            mpi_handle communicator),
           (from, to, count, type, operation, root, communicator))
COLLECTIVE(Allreduce,
           (const void *from, void *to, int count, mpi_handle type, mpi_handle operation, mpi_handle communicator),
           (from, to, count, type, operation, communicator))
COLLECTIVE(Scan,
           (const void *from, void *to, int count, mpi_handle type, mpi_handle operation, mpi_handle communicator),
           (from, to, count, type, operation, communicator))
COLLECTIVE(Exscan,
           (const void *from, void *to, int count, mpi_handle type, mpi_handle operation, mpi_handle communicator),
           (from, to, count, type, operation, communicator))
COLLECTIVE(Reduce_scatter,
           (const void *from, void *to, const int counts[], mpi_handle type, mpi_handle operation,
            mpi_handle communicator),
           (from, to, counts, type, operation, communicator))
COLLECTIVE(Reduce_scatter_block,
           (const void *from, void *to, int count, mpi_handle type, mpi_handle operation, mpi_handle communicator),
           (from, to, count, type, operation, communicator))
COLLECTIVE(Gather,
           (const void *from, int from_count, mpi_handle from_type, void *to, int to_count, mpi_handle to_type,
            int root, mpi_handle communicator),
           (from, from_count, from_type, to, to_count, to_type, root, communicator))
COLLECTIVE(Gatherv,
           (const void *from, int from_count, mpi_handle from_type, void *to, const int to_counts[],
            const int places[], mpi_handle to_type, int root, mpi_handle communicator),
           (from, from_count, from_type, to, to_counts, places, to_type, root, communicator))
COLLECTIVE(Allgather,
           (const void *from, int from_count, mpi_handle from_type, void *to, int to_count, mpi_handle to_type,
            mpi_handle communicator),
           (from, from_count, from_type, to, to_count, to_type, communicator))
COLLECTIVE(Allgatherv,
           (const void *from, int from_count, mpi_handle from_type, void *to, const int to_counts[],
            const int places[], mpi_handle to_type, mpi_handle communicator),
           (from, from_count, from_type, to, to_counts, places, to_type, communicator))
COLLECTIVE(Scatter,
           (const void *from, int from_count, mpi_handle from_type, void *to, int to_count, mpi_handle to_type,
            int root, mpi_handle communicator),
           (from, from_count, from_type, to, to_count, to_type, root, communicator))
COLLECTIVE(Scatterv,
           (const void *from, const int from_counts[], const int places[], mpi_handle from_type, void *to,
            int to_count, mpi_handle to_type, int root, mpi_handle communicator),
           (from, from_counts, places, from_type, to, to_count, to_type, root, communicator))
COLLECTIVE(Alltoall,
           (const void *from, int from_count, mpi_handle from_type, void *to, int to_count, mpi_handle to_type,
            mpi_handle communicator),
           (from, from_count, from_type, to, to_count, to_type, communicator))
COLLECTIVE(Alltoallv,
           (const void *from, const int from_counts[], const int from_places[], mpi_handle from_type, void *to,
            const int to_counts[], const int to_places[], mpi_handle to_type, mpi_handle communicator),
           (from, from_counts, from_places, from_type, to, to_counts, to_places, to_type, communicator))
COLLECTIVE(Alltoallw,
           (const void *from, const int from_counts[], const int from_places[], const void *from_types,
            void *to, const int to_counts[], const int to_places[], const void *to_types,
            mpi_handle communicator),
           (from, from_counts, from_places, from_types, to, to_counts, to_places, to_types, communicator))

/* ---- Fortran ---- */

/* A Fortran parameter, which is always an address. */
typedef void *Address;

/* Defines a wrapper of a Fortran binding, which runs code before and after the binding. */
#define FORTRAN(name, parameters, arguments, before, after)                     \
    EXPORTED void name parameters;                                              \
    EXPORTED void name parameters                                               \
    {                                                                           \
        NEXT(name, void, parameters);                                           \
        before;                                                                 \
        depth++;                                                                \
        next arguments;                                                         \
        depth--;                                                                \
        after;                                                                  \
    }

static void start_at_once(void)
{
    if (depth == 0)
        start();
}

static void finish_if_active(void)
{
    if (active && depth == 0)
        finish();
}

static void report_fortran(const int *communicator)
{
    if (!active)
        return;
    if (depth++ == 0)
        world->report_fortran(*communicator);
    depth--;
}

#define NOTHING (void)0

#define START_AND_END(suffix)                                                             \
    FORTRAN(mpi_init##suffix, (Address error), (error), NOTHING, start_at_once())  \
    FORTRAN(mpi_init_thread##suffix, (Address required, Address provided, Address error), \
            (required, provided, error), NOTHING, start_at_once())                 \
    FORTRAN(mpi_finalize##suffix, (Address error), (error), finish_if_active(), NOTHING)  \
    FORTRAN(mpi_abort##suffix, (Address communicator, Address code, Address error),       \
            (communicator, code, error), before_abort(), NOTHING)

/* Define wrappers by number of parameters. The last two parameters are the communicator and the error. The derived type
 * MPI_Comm begins with the communicator's number. */
#define FORTRAN_COLLECTIVE(name, parameters, arguments) \
    FORTRAN(name, parameters, arguments, report_fortran(communicator), NOTHING)
#define PARAMETERS_2 (const int *communicator, Address error)
#define ARGUMENTS_2 (communicator, error)
#define PARAMETERS_6 (Address a, Address b, Address c, Address d, const int *communicator, Address error)
#define ARGUMENTS_6 (a, b, c, d, communicator, error)
#define PARAMETERS_7 \
    (Address a, Address b, Address c, Address d, Address e, const int *communicator, Address error)
#define ARGUMENTS_7 (a, b, c, d, e, communicator, error)
#define PARAMETERS_8 \
    (Address a, Address b, Address c, Address d, Address e, Address f, const int *communicator, Address error)
#define ARGUMENTS_8 (a, b, c, d, e, f, communicator, error)
#define PARAMETERS_9                                                                                            \
    (Address a, Address b, Address c, Address d, Address e, Address f, Address g, const int *communicator, \
     Address error)
#define ARGUMENTS_9 (a, b, c, d, e, f, g, communicator, error)
#define PARAMETERS_10                                                                        \
    (Address a, Address b, Address c, Address d, Address e, Address f, Address g, Address h, \
     const int *communicator, Address error)
#define ARGUMENTS_10 (a, b, c, d, e, f, g, h, communicator, error)

/* Defines the collectives with buffers. In `use mpi_f08`, bindings with buffers have the suffix `f08ts` if buffers are
 * passed as descriptors. Bindings without buffers keep the plain suffix. */
#define COLLECTIVES_WITH_BUFFERS(suffix)                                            \
    FORTRAN_COLLECTIVE(mpi_bcast##suffix, PARAMETERS_6, ARGUMENTS_6)                \
    FORTRAN_COLLECTIVE(mpi_reduce##suffix, PARAMETERS_8, ARGUMENTS_8)               \
    FORTRAN_COLLECTIVE(mpi_allreduce##suffix, PARAMETERS_7, ARGUMENTS_7)            \
    FORTRAN_COLLECTIVE(mpi_scan##suffix, PARAMETERS_7, ARGUMENTS_7)                 \
    FORTRAN_COLLECTIVE(mpi_exscan##suffix, PARAMETERS_7, ARGUMENTS_7)               \
    FORTRAN_COLLECTIVE(mpi_reduce_scatter##suffix, PARAMETERS_7, ARGUMENTS_7)       \
    FORTRAN_COLLECTIVE(mpi_reduce_scatter_block##suffix, PARAMETERS_7, ARGUMENTS_7) \
    FORTRAN_COLLECTIVE(mpi_gather##suffix, PARAMETERS_9, ARGUMENTS_9)               \
    FORTRAN_COLLECTIVE(mpi_gatherv##suffix, PARAMETERS_10, ARGUMENTS_10)            \
    FORTRAN_COLLECTIVE(mpi_allgather##suffix, PARAMETERS_8, ARGUMENTS_8)            \
    FORTRAN_COLLECTIVE(mpi_allgatherv##suffix, PARAMETERS_9, ARGUMENTS_9)           \
    FORTRAN_COLLECTIVE(mpi_scatter##suffix, PARAMETERS_9, ARGUMENTS_9)              \
    FORTRAN_COLLECTIVE(mpi_scatterv##suffix, PARAMETERS_10, ARGUMENTS_10)           \
    FORTRAN_COLLECTIVE(mpi_alltoall##suffix, PARAMETERS_8, ARGUMENTS_8)             \
    FORTRAN_COLLECTIVE(mpi_alltoallv##suffix, PARAMETERS_10, ARGUMENTS_10)          \
    FORTRAN_COLLECTIVE(mpi_alltoallw##suffix, PARAMETERS_10, ARGUMENTS_10)

START_AND_END(_)
START_AND_END(_f08_)
FORTRAN_COLLECTIVE(mpi_barrier_, PARAMETERS_2, ARGUMENTS_2)
FORTRAN_COLLECTIVE(mpi_barrier_f08_, PARAMETERS_2, ARGUMENTS_2)
COLLECTIVES_WITH_BUFFERS(_)
COLLECTIVES_WITH_BUFFERS(_f08_)
COLLECTIVES_WITH_BUFFERS(_f08ts_)
