/*
 * libturbidite_preload_world.so, the part of the MPI shim that is linked to MPI. The shim (libturbidite_preload_mpi.so)
 * loads this library only after MPI has been initialised. Preloaded programs that do not use MPI, such as child
 * processes of a simulation, therefore load no MPI.
 *
 * A collective is reported if its communicator contains all ranks in the order of MPI_COMM_WORLD.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "connection.h"
#include "preload_world.h"
#include "turbidite_preload.h"

/* The functions of libturbidite_preload.so. All are set once `start` has succeeded. */
static struct {
    void (*mpi_started)(const turbidite_transport *, const turbidite_agreement *);
    void (*at_collective)(void);
    void (*before_finalize)(void);
} library;

/* Maximum number of datasets that are written at the same time. */
enum { CONNECTIONS = 64 };

static turbidite_transport *transport;
static turbidite_transport *connections[CONNECTIONS];
static size_t connection_count;
static turbidite_agreement agreement;
/* Key of the attribute that caches on a communicator whether it is congruent to MPI_COMM_WORLD. The time of a
 * comparison is proportional to the number of ranks. */
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

/* Finds the functions of libturbidite_preload.so. The casts follow POSIX, since dlsym returns function pointers as
 * object pointers. */
static bool find_library(void)
{
    *(void **)&library.mpi_started = dlsym(RTLD_DEFAULT, "turbidite_preload_mpi_started");
    *(void **)&library.at_collective = dlsym(RTLD_DEFAULT, "turbidite_preload_at_collective");
    *(void **)&library.before_finalize = dlsym(RTLD_DEFAULT, "turbidite_preload_before_finalize");
    return library.mpi_started != NULL && library.at_collective != NULL && library.before_finalize != NULL;
}

/* Starts indexing on every rank after MPI has been initialised. Returns whether this succeeded. A failure must not stop
 * the program. */
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

/* Ends indexing and frees the resources of `start`, while MPI can still be used. */
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
    /* If the attribute cannot be set, the next call compares the communicator again. */
    (void)PMPI_Comm_set_attr(communicator, congruence, same ? &congruent : &different);
    return same;
}

static void report_communicator(MPI_Comm communicator)
{
    if (communicator == MPI_COMM_WORLD || is_congruent(communicator))
        library.at_collective();
}

/* Reports that the program is about to enter a collective. If MPI_Comm is an int, it is the lower half of
 * `communicator`. */
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
