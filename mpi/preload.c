/*
 * libturbidite_preload_mpi.so: tells libturbidite_preload.so, which knows no MPI, when MPI has started, when the
 * program is about to enter a collective over all its ranks, and when it finalises. Without that library every call
 * passes through.
 *
 * C calls arrive by MPI's profiling interface: MPI_X here, PMPI_X in MPI. Fortran needs names of its own, since the
 * bindings differ: those of MPICH end in MPI_X for mpif.h and `use mpi`, and in PMPI_X for most of `use mpi_f08`;
 * those of Open MPI always end in PMPI_X. A Fortran call is therefore reported where it comes in and passed to the
 * next library that has its name, which alone knows what MPI_IN_PLACE and descriptors look like. `depth` makes sure
 * that the MPI_X it may end in is not reported again; nor is what we call ourselves.
 *
 * A collective counts when its communicator has all ranks in the order of MPI_COMM_WORLD, and on the thread that
 * initialised MPI only: that thread alone may use the transport.
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
#include <stdio.h>
#include <stdlib.h>

#include "connection.h"
#include "turbidite_preload.h"

#define EXPORTED __attribute__((visibility("default")))
/* A library that is preloaded may have its variables at a fixed distance from the thread pointer: one load. */
#define PER_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

/* The functions of libturbidite_preload.so; all there while `active`. */
static struct {
    void (*mpi_started)(const turbidite_transport *, const turbidite_agreement *);
    void (*at_collective)(void);
    void (*before_finalize)(void);
} library;

/* Set on the thread that initialised MPI, between the start and the end of the library's time. */
static PER_THREAD bool active;
/* Wrapped calls this thread is in. */
static PER_THREAD int depth;

/* As many datasets may be written at once. */
enum { CONNECTIONS = 64 };

static turbidite_transport *transport;
static turbidite_transport *connections[CONNECTIONS];
static size_t connection_count;
static turbidite_agreement agreement;
/* Remembers on a communicator whether it is congruent to MPI_COMM_WORLD: comparing takes time in proportion to the
 * ranks. */
static int congruence = MPI_KEYVAL_INVALID;
static char congruent, different;

static int32_t agree(int64_t *values, size_t count, MPI_Op operation)
{
    if (count > INT_MAX)
        return -MPI_ERR_COUNT;
    int error = PMPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_INT64_T, operation,
                               turbidite_mpi_communicator(transport));
    int class = MPI_ERR_OTHER;
    if (error != MPI_SUCCESS && (PMPI_Error_class(error, &class) != MPI_SUCCESS || class <= 0))
        class = MPI_ERR_OTHER;
    return error == MPI_SUCCESS ? 0 : -class;
}

static int32_t agree_minimum(void *context, int64_t *values, size_t count)
{
    (void)context;
    return agree(values, count, MPI_MIN);
}

static int32_t agree_sum(void *context, int64_t *values, size_t count)
{
    (void)context;
    return agree(values, count, MPI_SUM);
}

static const turbidite_transport *connect_dataset(void *context)
{
    (void)context;
    if (connection_count == CONNECTIONS) {
        fprintf(stderr, "turbidite: no more than %d datasets at once\n", CONNECTIONS);
        return NULL;
    }
    turbidite_transport **connection = &connections[connection_count];
    if (turbidite_mpi_open(turbidite_mpi_communicator(transport), connection) != TURBIDITE_OK) {
        fprintf(stderr, "turbidite: %s\n", turbidite_mpi_last_error());
        return NULL;
    }
    connection_count++;
    return *connection;
}

/* Finds the library. The casts are POSIX's: dlsym answers functions as objects. */
static bool find_library(void)
{
    *(void **)&library.mpi_started = dlsym(RTLD_DEFAULT, "turbidite_preload_mpi_started");
    *(void **)&library.at_collective = dlsym(RTLD_DEFAULT, "turbidite_preload_at_collective");
    *(void **)&library.before_finalize = dlsym(RTLD_DEFAULT, "turbidite_preload_before_finalize");
    return library.mpi_started != NULL && library.at_collective != NULL && library.before_finalize != NULL;
}

/* After the outermost initialisation. An index that cannot be had is no reason to stop the program. */
static void start(void)
{
    if (!find_library())
        return;
    depth++;
    if (turbidite_mpi_open(MPI_COMM_WORLD, &transport) != TURBIDITE_OK) {
        fprintf(stderr, "turbidite: nothing is indexed: %s\n", turbidite_mpi_last_error());
    } else {
        if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &congruence, NULL) != MPI_SUCCESS)
            congruence = MPI_KEYVAL_INVALID;
        agreement = (turbidite_agreement){.struct_size = sizeof agreement,
                                          .context = NULL,
                                          .minimum = agree_minimum,
                                          .sum = agree_sum,
                                          .connect = connect_dataset};
        active = true;
        library.mpi_started(transport, &agreement);
    }
    depth--;
}

static void close_connection(turbidite_transport *connection)
{
    if (turbidite_mpi_close(connection) != TURBIDITE_OK)
        fprintf(stderr, "turbidite: %s\n", turbidite_mpi_last_error());
}

/* Before the outermost finalisation. */
static void finish(void)
{
    depth++;
    library.before_finalize();
    active = false;
    while (connection_count > 0)
        close_connection(connections[--connection_count]);
    close_connection(transport);
    transport = NULL;
    if (congruence != MPI_KEYVAL_INVALID)
        PMPI_Comm_free_keyval(&congruence);
    depth--;
}

/* Whether a communicator other than MPI_COMM_WORLD has the same ranks in the same order. */
static bool is_congruent(MPI_Comm communicator)
{
    void *known = NULL;
    int found = 0, result = MPI_UNEQUAL;
    if (communicator == MPI_COMM_NULL || communicator == MPI_COMM_SELF || congruence == MPI_KEYVAL_INVALID)
        return false;
    if (PMPI_Comm_get_attr(communicator, congruence, &known, &found) == MPI_SUCCESS && found)
        return known == &congruent;
    if (PMPI_Comm_compare(communicator, MPI_COMM_WORLD, &result) != MPI_SUCCESS)
        return false;
    bool same = result == MPI_IDENT || result == MPI_CONGRUENT;
    /* Not remembered: it is compared again next time. */
    (void)PMPI_Comm_set_attr(communicator, congruence, same ? &congruent : &different);
    return same;
}

/* Reports a collective that the program has called. */
static void report(MPI_Comm communicator)
{
    depth++;
    if (depth == 1 && (communicator == MPI_COMM_WORLD || is_congruent(communicator)))
        library.at_collective();
    depth--;
}

/* ---- C ---- */

EXPORTED int MPI_Init(int *count, char ***arguments)
{
    depth++;
    int answer = PMPI_Init(count, arguments);
    if (--depth == 0 && answer == MPI_SUCCESS)
        start();
    return answer;
}

EXPORTED int MPI_Init_thread(int *count, char ***arguments, int required, int *provided)
{
    depth++;
    int answer = PMPI_Init_thread(count, arguments, required, provided);
    if (--depth == 0 && answer == MPI_SUCCESS)
        start();
    return answer;
}

EXPORTED int MPI_Finalize(void)
{
    if (active && depth == 0)
        finish();
    depth++;
    int answer = PMPI_Finalize();
    depth--;
    return answer;
}

/* The parameters and arguments are those of the MPI standard; every one of these functions has a `communicator`. */
#define COLLECTIVE(name, parameters, arguments) \
    EXPORTED int MPI_##name parameters          \
    {                                           \
        if (!active)                            \
            return PMPI_##name arguments;       \
        report(communicator);                   \
        depth++;                                \
        int answer = PMPI_##name arguments;     \
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

/* The binding behind ours, of a name called from `caller`. Where the calling library was loaded by dlopen, as
 * extensions of Python are, the binding is visible to that library only. */
static void *next_binding(const char *name, void *caller)
{
    void *next = dlsym(RTLD_NEXT, name);
    Dl_info library_of_caller;
    if (next == NULL && dladdr(caller, &library_of_caller) != 0) {
        void *handle = dlopen(library_of_caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL) {
            next = dlsym(handle, name);
            dlclose(handle);
        }
    }
    if (next == NULL) {
        /* There is nothing that could carry out the call, and no way to say so to the program. */
        fprintf(stderr,
                "turbidite: cannot find the library that has %s; do not preload libturbidite_preload_mpi.so\n", name);
        abort();
    }
    return next;
}

/* Defines a Fortran name that does something before and after the binding behind it. */
#define FORTRAN(name, parameters, arguments, before, after)                     \
    EXPORTED void name parameters;                                              \
    EXPORTED void name parameters                                               \
    {                                                                           \
        static void(*next) parameters;                                          \
        if (next == NULL)                                                       \
            *(void **)&next = next_binding(#name, __builtin_return_address(0)); \
        before;                                                                 \
        depth++;                                                                \
        next arguments;                                                         \
        depth--;                                                                \
        after;                                                                  \
    }

static void start_if_initialized(void)
{
    int initialized = 0;
    if (depth == 0 && PMPI_Initialized(&initialized) == MPI_SUCCESS && initialized)
        start();
}

static void finish_if_active(void)
{
    if (active && depth == 0)
        finish();
}

static void report_fortran(const MPI_Fint *communicator)
{
    if (active)
        report(PMPI_Comm_f2c(*communicator));
}

#define NOTHING (void)0

#define START_AND_FINISH(suffix)                                                          \
    FORTRAN(mpi_init##suffix, (Address error), (error), NOTHING, start_if_initialized())  \
    FORTRAN(mpi_init_thread##suffix, (Address required, Address provided, Address error), \
            (required, provided, error), NOTHING, start_if_initialized())                 \
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
