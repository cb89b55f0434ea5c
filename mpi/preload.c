/*
 * libturbidite_preload_mpi.so: tells libturbidite_preload.so, which knows no MPI, when MPI has started, when the
 * program is about to enter a collective over all its ranks, and when it finalises. Without that library every call
 * passes through.
 *
 * It is not linked to MPI, and finds whatever it passes calls to by name when they come: a process that does not use
 * MPI does not have to load one, which takes many times as long as a small program. The part that uses MPI itself is
 * libturbidite_preload_world.so beside it, loaded when MPI has started.
 *
 * C calls arrive by MPI's profiling interface: MPI_X here, PMPI_X in MPI or in another tool behind us. A tool before
 * us passes the start and the end of MPI to PMPI_X, as Darshan does, so these three are wrapped under both names.
 * Fortran needs names of its own, since the bindings differ: those of MPICH end in MPI_X for mpif.h and `use mpi`, and
 * in PMPI_X for most of `use mpi_f08`; those of Open MPI always end in PMPI_X. A Fortran call is therefore reported
 * where it comes in and passed to the next library that has its name, which alone knows what MPI_IN_PLACE and
 * descriptors look like. `depth` makes sure that the MPI_X it may end in is not reported again; nor is what we call
 * ourselves.
 *
 * Calls count on the thread that initialised MPI only: that thread alone may use the transport.
 *
 * What is wrapped is every collective that moves data or waits, in which all ranks may be made to wait for each other:
 * of those the standard says that they may synchronise. Not wrapped:
 * - nonblocking collectives (MPI_Ibarrier) and persistent ones. Starting one may not wait for anybody: a program may
 *   start one on rank 0 and then receive what rank 1 sends before it starts its own. Where they end, ranks may be in
 *   different orders.
 * - neighbourhood collectives: an MPI lets a rank go on once its neighbours have come, so programs may rely on it.
 * - those that make or free communicators, windows and files, which programs call while they set out.
 * A program that makes no other calls is indexed when it finalises.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload_world.h"

#define EXPORTED __attribute__((visibility("default")))
/* A library that is preloaded may have its variables at a fixed distance from the thread pointer: one load. */
#define PER_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

/* The part that uses MPI, once MPI has started. */
static const struct preload_world *world;
/* Set on the thread that initialised MPI, between the start and the end of the library's time. */
static PER_THREAD bool active;
/* Wrapped calls this thread is in. */
static PER_THREAD int depth;

/* Loads the part that uses MPI, which lies beside us. */
static const struct preload_world *load_world(void)
{
    Dl_info us;
    char path[PATH_MAX];
    if (dladdr(&world, &us) == 0)
        return NULL;
    const char *end = strrchr(us.dli_fname, '/');
    int folder = end == NULL ? 0 : (int)(end - us.dli_fname + 1);
    int length = snprintf(path, sizeof path, "%.*slibturbidite_preload_world.so", folder, us.dli_fname);
    void *handle = length < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (handle == NULL) {
        fprintf(stderr, "turbidite: nothing is indexed: %s\n", dlerror());
        return NULL;
    }
    return dlsym(handle, "turbidite_preload_world");
}

/* After the outermost initialisation. Without libturbidite_preload.so there is nobody to tell. */
static void start(void)
{
    if (world != NULL || dlsym(RTLD_DEFAULT, "turbidite_preload_mpi_started") == NULL)
        return;
    world = load_world();
    depth++;
    active = world != NULL && world->start();
    depth--;
}

/* Before the outermost finalisation. */
static void finish(void)
{
    depth++;
    active = false;
    world->finish();
    depth--;
}

/* Reports a collective that the program has called. */
static void report(MPI_Comm communicator)
{
    if (depth++ == 0)
        world->report(communicator);
    depth--;
}

/* The library of `caller`, with all that it needs; NULL when there is none but the program. */
static void *library_of(void *caller)
{
    Dl_info known;
    return dladdr(caller, &known) == 0 ? NULL : dlopen(known.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

/* The binding behind ours, of a name called from `caller`. Where the calling library was loaded by dlopen, as
 * extensions of Python are, the binding is visible to that library only; and who calls last is not always known, since
 * a compiler may leave a function by a jump to ours. */
static void *next_binding(const char *name, void *caller)
{
    /* Stays open: MPI is not unloaded before the process ends. */
    static void *with_mpi;
    void *next = dlsym(RTLD_NEXT, name);
    void *library = next == NULL ? library_of(caller) : NULL;
    if (library != NULL && (next = dlsym(library, name)) != NULL && with_mpi == NULL)
        with_mpi = library;
    else if (library != NULL)
        dlclose(library);
    if (next == NULL && with_mpi != NULL)
        next = dlsym(with_mpi, name);
    if (next == NULL) {
        /* There is nothing that could carry out the call, and no way to say so to the program. */
        fprintf(stderr,
                "turbidite: cannot find the library that has %s; do not preload libturbidite_preload_mpi.so\n", name);
        abort();
    }
    return next;
}

/* A variable `next`: the function behind ours of this name, which has ours' type. */
#define NEXT(name, result, parameters) \
    static result(*next) parameters;   \
    if (next == NULL)                  \
        *(void **)&next = next_binding(#name, __builtin_return_address(0))

/* ---- C ---- */

/* Defines the start of MPI under one name. */
#define START(name, behind, parameters, arguments) \
    EXPORTED int name parameters                   \
    {                                              \
        NEXT(behind, int, parameters);             \
        depth++;                                   \
        int answer = next arguments;               \
        if (--depth == 0 && answer == MPI_SUCCESS) \
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

COLLECTIVE(Barrier, (MPI_Comm communicator), (communicator))
COLLECTIVE(Bcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm communicator),
           (buffer, count, type, root, communicator))
COLLECTIVE(Reduce,
           (const void *from, void *to, int count, MPI_Datatype type, MPI_Op operation, int root,
            MPI_Comm communicator),
           (from, to, count, type, operation, root, communicator))
COLLECTIVE(Allreduce,
           (const void *from, void *to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm communicator),
           (from, to, count, type, operation, communicator))
COLLECTIVE(Scan, (const void *from, void *to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm communicator),
           (from, to, count, type, operation, communicator))
COLLECTIVE(Exscan, (const void *from, void *to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm communicator),
           (from, to, count, type, operation, communicator))
COLLECTIVE(Reduce_scatter,
           (const void *from, void *to, const int counts[], MPI_Datatype type, MPI_Op operation,
            MPI_Comm communicator),
           (from, to, counts, type, operation, communicator))
COLLECTIVE(Reduce_scatter_block,
           (const void *from, void *to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm communicator),
           (from, to, count, type, operation, communicator))
COLLECTIVE(Gather,
           (const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count, MPI_Datatype to_type,
            int root, MPI_Comm communicator),
           (from, from_count, from_type, to, to_count, to_type, root, communicator))
COLLECTIVE(Gatherv,
           (const void *from, int from_count, MPI_Datatype from_type, void *to, const int to_counts[],
            const int places[], MPI_Datatype to_type, int root, MPI_Comm communicator),
           (from, from_count, from_type, to, to_counts, places, to_type, root, communicator))
COLLECTIVE(Allgather,
           (const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count, MPI_Datatype to_type,
            MPI_Comm communicator),
           (from, from_count, from_type, to, to_count, to_type, communicator))
COLLECTIVE(Allgatherv,
           (const void *from, int from_count, MPI_Datatype from_type, void *to, const int to_counts[],
            const int places[], MPI_Datatype to_type, MPI_Comm communicator),
           (from, from_count, from_type, to, to_counts, places, to_type, communicator))
COLLECTIVE(Scatter,
           (const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count, MPI_Datatype to_type,
            int root, MPI_Comm communicator),
           (from, from_count, from_type, to, to_count, to_type, root, communicator))
COLLECTIVE(Scatterv,
           (const void *from, const int from_counts[], const int places[], MPI_Datatype from_type, void *to,
            int to_count, MPI_Datatype to_type, int root, MPI_Comm communicator),
           (from, from_counts, places, from_type, to, to_count, to_type, root, communicator))
COLLECTIVE(Alltoall,
           (const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count, MPI_Datatype to_type,
            MPI_Comm communicator),
           (from, from_count, from_type, to, to_count, to_type, communicator))
COLLECTIVE(Alltoallv,
           (const void *from, const int from_counts[], const int from_places[], MPI_Datatype from_type, void *to,
            const int to_counts[], const int to_places[], MPI_Datatype to_type, MPI_Comm communicator),
           (from, from_counts, from_places, from_type, to, to_counts, to_places, to_type, communicator))
COLLECTIVE(Alltoallw,
           (const void *from, const int from_counts[], const int from_places[], const MPI_Datatype from_types[],
            void *to, const int to_counts[], const int to_places[], const MPI_Datatype to_types[],
            MPI_Comm communicator),
           (from, from_counts, from_places, from_types, to, to_counts, to_places, to_types, communicator))

/* ---- Fortran ---- */

/* A Fortran parameter: always an address. */
typedef void *Address;

/* Defines a Fortran name that does something before and after the binding behind it. */
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

static void report_fortran(const MPI_Fint *communicator)
{
    if (!active)
        return;
    if (depth++ == 0)
        world->report_fortran(*communicator);
    depth--;
}

#define NOTHING (void)0

#define START_AND_FINISH(suffix)                                                          \
    FORTRAN(mpi_init##suffix, (Address error), (error), NOTHING, start_at_once())  \
    FORTRAN(mpi_init_thread##suffix, (Address required, Address provided, Address error), \
            (required, provided, error), NOTHING, start_at_once())                 \
    FORTRAN(mpi_finalize##suffix, (Address error), (error), finish_if_active(), NOTHING)

/* By number of parameters; the last two are the communicator and the error. A derived type MPI_Comm begins with the
 * number. */
#define FORTRAN_COLLECTIVE(name, parameters, arguments) \
    FORTRAN(name, parameters, arguments, report_fortran(communicator), NOTHING)
#define PARAMETERS_2 (const MPI_Fint *communicator, Address error)
#define ARGUMENTS_2 (communicator, error)
#define PARAMETERS_6 (Address a, Address b, Address c, Address d, const MPI_Fint *communicator, Address error)
#define ARGUMENTS_6 (a, b, c, d, communicator, error)
#define PARAMETERS_7 \
    (Address a, Address b, Address c, Address d, Address e, const MPI_Fint *communicator, Address error)
#define ARGUMENTS_7 (a, b, c, d, e, communicator, error)
#define PARAMETERS_8 \
    (Address a, Address b, Address c, Address d, Address e, Address f, const MPI_Fint *communicator, Address error)
#define ARGUMENTS_8 (a, b, c, d, e, f, communicator, error)
#define PARAMETERS_9                                                                                            \
    (Address a, Address b, Address c, Address d, Address e, Address f, Address g, const MPI_Fint *communicator, \
     Address error)
#define ARGUMENTS_9 (a, b, c, d, e, f, g, communicator, error)
#define PARAMETERS_10                                                                        \
    (Address a, Address b, Address c, Address d, Address e, Address f, Address g, Address h, \
     const MPI_Fint *communicator, Address error)
#define ARGUMENTS_10 (a, b, c, d, e, f, g, h, communicator, error)

/* Collectives without a buffer keep the plain suffix in `use mpi_f08`; those with one have `f08ts` where it is a
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

START_AND_FINISH(_)
START_AND_FINISH(_f08_)
FORTRAN_COLLECTIVE(mpi_barrier_, PARAMETERS_2, ARGUMENTS_2)
FORTRAN_COLLECTIVE(mpi_barrier_f08_, PARAMETERS_2, ARGUMENTS_2)
COLLECTIVES_WITH_BUFFERS(_)
COLLECTIVES_WITH_BUFFERS(_f08_)
COLLECTIVES_WITH_BUFFERS(_f08ts_)
