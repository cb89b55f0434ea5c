/*
 * libturbidite_preload_mpi.so: tells libturbidite_preload.so, which is independent of MPI, when MPI has started, when
 * the program is about to enter a collective over all its ranks, and when it finalises. Without that library every call
 * passes through.
 *
 * This library is not linked to MPI and looks up the functions behind it by name when they are first called: a process
 * that does not use MPI need not load it, which takes many times as long as a small program runs. The part that uses
 * MPI itself is libturbidite_preload_world.so beside it, loaded when MPI has started and belongs to the family that
 * part was built for. Nothing here depends on an mpi.h: calls of any MPI pass, with handles as words as wide as a
 * pointer.
 *
 * C calls arrive through MPI's profiling interface: MPI_X here, PMPI_X in MPI or in another tool behind us. A tool
 * before us passes the start and the end of MPI to PMPI_X, as Darshan does, so these three functions are wrapped under
 * both names. Fortran needs names of its own, since the bindings differ: MPICH's call MPI_X for mpif.h and `use mpi`,
 * and PMPI_X for most of `use mpi_f08`; Open MPI's always call PMPI_X. A Fortran call is therefore reported on entry
 * and passed to the next library with its name, since only the binding knows the representation of MPI_IN_PLACE and
 * descriptors. `depth` prevents a second report by the MPI_X that the call may end in, and any report of our own calls.
 *
 * Only calls on the thread that initialised MPI count: only that thread may use the transport.
 *
 * All collectives that move data or wait are wrapped, if all ranks may be made to wait for each other in them: the
 * standard says that these may synchronise. Not wrapped:
 * - nonblocking collectives (MPI_Ibarrier) and persistent ones. Starting one must not wait for other ranks: a program
 *   may start one on rank 0 and then receive a message that rank 1 sends before it starts its own. Ranks may complete
 *   them in different orders.
 * - neighbourhood collectives: an MPI lets a rank continue once its neighbours have arrived, so programs may rely on
 *   it.
 * - collectives that create or free communicators, windows and files, which programs call during their setup. A program
 *   that makes no other calls is indexed when it finalises.
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
/* A preloaded library may have its variables at a fixed offset from the thread pointer: one load. */
#define PER_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

/* The part that uses MPI, once MPI has started. */
static const struct preload_world *world;
/* Set between the library's start and end, on any thread. */
static atomic_bool running;
/* Set on the thread that initialised MPI, between the library's start and end. */
static PER_THREAD bool active;
/* Number of wrapped calls that this thread is in. */
static PER_THREAD int depth;

/* Returns the folder of this library and of the part that uses MPI, with a trailing slash; empty if it is unknown. */
static const char *own_folder(void)
{
    static char folder[PATH_MAX];
    Dl_info us;
    const char *end = dladdr(&world, &us) == 0 ? NULL : strrchr(us.dli_fname, '/');
    if (end != NULL && end - us.dli_fname + 2 <= PATH_MAX)
        snprintf(folder, sizeof folder, "%.*s", (int)(end - us.dli_fname + 1), us.dli_fname);
    return folder;
}

/* Loads the part that uses MPI, which lies beside this library. */
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

/* Reports, on one rank, that the libraries are built for one MPI and the program runs with another. */
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

/* Reports, on one rank, that libturbidite_preload.so is absent. */
static void explain_absence(const struct running_mpi *mpi)
{
    if (!is_first_rank(mpi))
        return;
    fprintf(stderr,
            "turbidite: nothing is indexed: libturbidite_preload_mpi.so is preloaded without libturbidite_preload.so; "
            "preload both: LD_PRELOAD=%slibturbidite_preload.so:%slibturbidite_preload_mpi.so\n",
            own_folder(), own_folder());
}

/* Starts the part that uses MPI. Returns whether to call its other functions. */
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
    /* The reason has been reported: the library must not ask for this one, which is preloaded already. */
    void (*refused)(void);
    *(void **)&refused = dlsym(RTLD_DEFAULT, "turbidite_preload_mpi_refused");
    if (refused != NULL)
        refused();
    return false;
}

/* Runs after the outermost initialisation. */
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

/* Runs before the outermost finalisation. */
static void finish(void)
{
    depth++;
    active = running = false;
    world->finish();
    depth--;
}

/* Runs before MPI ends all ranks: this one may never reach its exit handlers, since the launcher kills it. */
static void before_abort(void)
{
    void (*tell)(void);
    if (depth > 0 || !running)
        return;
    *(void **)&tell = dlsym(RTLD_DEFAULT, "turbidite_preload_before_abort");
    if (tell != NULL)
        tell();
}

/* Reports a collective that the program has called. */
static void report(mpi_handle communicator)
{
    if (depth++ == 0)
        world->report(communicator);
    depth--;
}

/* Defines `next`: the function of this name behind ours, which has the same type. */
#define NEXT(name, result, parameters) \
    static result(*next) parameters;   \
    if (next == NULL)                  \
        *(void **)&next = next_binding(#name, __builtin_return_address(0))

/* ---- C ---- */

/* MPI_SUCCESS of every MPI, as the standard defines it. */
enum { SUCCESS = 0 };

/* Defines the start of MPI under one name. */
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

/* The parameters and arguments are those of the MPI standard; every one of these functions has a `communicator`. */
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

/* A Fortran parameter: always an address. */
typedef void *Address;

/* Defines a Fortran name that runs code before and after the binding behind it. */
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

/* By number of parameters; the last two are the communicator and the error. A derived type MPI_Comm begins with the
 * number. */
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

/* Collectives without a buffer keep the plain suffix in `use mpi_f08`; those with a buffer have `f08ts` if it is a
 * descriptor. */
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
