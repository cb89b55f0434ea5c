/*
 * libturbidite_preload_world.so: the part of libturbidite_preload_mpi.so that uses MPI. It alone is linked to MPI, and
 * is loaded only when MPI has started: preloaded programs that do not use MPI, such as child processes of a simulation,
 * do not load an MPI because of us.
 *
 * A collective counts if its communicator has all ranks in the order of MPI_COMM_WORLD.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "connection.h"
#include "preload_world.h"
#include "turbidite_preload.h"

/* The functions of libturbidite_preload.so; all are set once it has started. */
static struct {
    void (*mpi_started)(const turbidite_transport *, const turbidite_agreement *);
    void (*at_collective)(void);
    void (*before_finalize)(void);
} library;

/* Maximum number of datasets that are written at once. */
enum { CONNECTIONS = 64 };

static turbidite_transport *transport;
static turbidite_transport *connections[CONNECTIONS];
static size_t connection_count;
static turbidite_agreement agreement;
/* Caches on a communicator whether it is congruent to MPI_COMM_WORLD: a comparison takes time in proportion to the
 * number of ranks. */
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

/* Finds the library. The casts are POSIX's: dlsym returns functions as objects. */
static bool find_library(void)
{
    *(void **)&library.mpi_started = dlsym(RTLD_DEFAULT, "turbidite_preload_mpi_started");
    *(void **)&library.at_collective = dlsym(RTLD_DEFAULT, "turbidite_preload_at_collective");
    *(void **)&library.before_finalize = dlsym(RTLD_DEFAULT, "turbidite_preload_before_finalize");
    return library.mpi_started != NULL && library.at_collective != NULL && library.before_finalize != NULL;
}

/* Begins, on every rank, once MPI has started. Returns whether that succeeded; a failure must not stop the program. */
static int start(void)
{
    int initialized = 0;
    if (PMPI_Initialized(&initialized) != MPI_SUCCESS || !initialized) {
        fprintf(stderr,
                "turbidite: nothing is indexed: libturbidite_preload_world.so is linked to another MPI library than "
                "the one that runs; build it with the program's mpicc: make install PREFIX=... MPICC=...\n");
        return 0;
    }
    if (!find_library()) {
        fprintf(stderr, "turbidite: nothing is indexed: the preloaded libraries belong to different releases\n");
        return 0;
    }
    if (turbidite_mpi_open(MPI_COMM_WORLD, &transport) != TURBIDITE_OK) {
        fprintf(stderr, "turbidite: nothing is indexed: %s\n", turbidite_mpi_last_error());
        return 0;
    }
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &congruence, NULL) != MPI_SUCCESS)
        congruence = MPI_KEYVAL_INVALID;
    agreement = (turbidite_agreement){.struct_size = sizeof agreement,
                                      .context = NULL,
                                      .minimum = agree_minimum,
                                      .sum = agree_sum,
                                      .connect = connect_dataset};
    library.mpi_started(transport, &agreement);
    return 1;
}

static void close_connection(turbidite_transport *connection)
{
    if (turbidite_mpi_close(connection) != TURBIDITE_OK)
        fprintf(stderr, "turbidite: %s\n", turbidite_mpi_last_error());
}

/* Ends what `start` began, while MPI still works. */
static void finish(void)
{
    library.before_finalize();
    while (connection_count > 0)
        close_connection(connections[--connection_count]);
    close_connection(transport);
    transport = NULL;
    if (congruence != MPI_KEYVAL_INVALID)
        PMPI_Comm_free_keyval(&congruence);
}

/* Returns whether a communicator other than MPI_COMM_WORLD has the same ranks in the same order. */
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
    /* If this fails, the communicator is compared again next time. */
    (void)PMPI_Comm_set_attr(communicator, congruence, same ? &congruent : &different);
    return same;
}

static void report_communicator(MPI_Comm communicator)
{
    if (communicator == MPI_COMM_WORLD || is_congruent(communicator))
        library.at_collective();
}

/* The program calls a collective. A handle that is an int is the lower half of the word. */
static void report(mpi_handle communicator)
{
    report_communicator((MPI_Comm)communicator);
}

static void report_fortran(int communicator)
{
#ifdef MPI_ABI_VERSION
    report_communicator(PMPI_Comm_fromint(communicator));
#else
    report_communicator(PMPI_Comm_f2c(communicator));
#endif
}

__attribute__((visibility("default"))) const struct preload_world turbidite_preload_world = {
    .start = start, .report = report, .report_fortran = report_fortran, .finish = finish};
