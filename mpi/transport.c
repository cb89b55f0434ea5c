/*
 * Opens and closes the transport over a communicator. See connection.h for the parts.
 *
 * No rank may be left waiting for another. Before open returns, the ranks agree on failures that may affect one rank
 * only. Close learns how many messages every other rank has sent, and receives until all of them have arrived. Only an
 * abandoned transport is closed without communication, since waiting for a missing rank would never end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"

/* The reason why the last open or close of this thread failed. */
static _Thread_local char last_error[MPI_MAX_ERROR_STRING + 128];

/* In libturbidite, which the command and the Python package do not load. */
#pragma weak turbidite_report_error

const char *turbidite_mpi_last_error(void)
{
    return last_error;
}

/* Lets turbidite_last_error return the last error, too, and print it if this rank `prints` it. Returns `status`. */
static int report(int status, bool prints)
{
    return turbidite_report_error ? turbidite_report_error(status, last_error, prints) : status;
}

/* Records and reports the reason why open or close failed. Returns TURBIDITE_FAILED. */
static int fail(const char *what, int error, bool prints)
{
    describe_error(last_error, sizeof last_error, what, error);
    return report(TURBIDITE_FAILED, prints);
}

static int refuse(const char *why)
{
    snprintf(last_error, sizeof last_error, "%s", why);
    return report(TURBIDITE_USAGE, true);
}

static const char *describe(void *context)
{
    return ((struct connection *)context)->description;
}

static void abandon(void *context)
{
    struct connection *connection = context;
    connection->abandoned = true;
    if (connection->failure != 0)
        return;
    connection->failure = -MPI_ERR_OTHER;
    snprintf(connection->description, sizeof connection->description,
             "the ranks have lost their connection; end the program with MPI_Abort, since MPI_Finalize waits for all ranks");
}

MPI_Comm turbidite_mpi_communicator(const turbidite_transport *transport)
{
    return ((const struct connection *)transport->context)->communicator;
}

/* Returns NULL if this thread may use MPI now, otherwise the reason why not. */
static const char *obstacle(void)
{
    int initialized = 0, finalized = 0, main_thread = 0, level = MPI_THREAD_SINGLE;
    if (MPI_Initialized(&initialized) != MPI_SUCCESS || !initialized)
        return "MPI is not initialised: call MPI_Init before turbidite_mpi_open";
    if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized)
        return "MPI is already finalised: close the transport before MPI_Finalize";
    if (MPI_Query_thread(&level) != MPI_SUCCESS || MPI_Is_thread_main(&main_thread) != MPI_SUCCESS)
        return "MPI does not report which thread may call it";
    if (level < MPI_THREAD_SERIALIZED && !main_thread)
        return "MPI was initialised by another thread: open and close the transport on that thread";
    return NULL;
}

/* Duplicates the program's communicator. The communicator's error handler, which may abort, is restored afterwards. */
static int duplicate(MPI_Comm communicator, MPI_Comm *copy)
{
    MPI_Errhandler handler;
    int error = MPI_Comm_get_errhandler(communicator, &handler);
    if (error != MPI_SUCCESS)
        return error;
    error = MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_dup(communicator, copy);
    int restored = MPI_Comm_set_errhandler(communicator, handler);
    int freed = MPI_Errhandler_free(&handler);
    if (error != MPI_SUCCESS)
        return error;
    error = MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN);
    return error != MPI_SUCCESS ? error : restored != MPI_SUCCESS ? restored : freed;
}

static void free_connection(struct connection *connection)
{
    outbox_free(&connection->outbox);
    inbox_free(&connection->inbox);
    free(connection->nodes);
    free(connection);
}

static bool allocate(struct connection *connection, uint32_t ranks)
{
    connection->nodes = malloc(ranks * sizeof *connection->nodes);
    return outbox_allocate(&connection->outbox, ranks) && connection->nodes != NULL;
}

/* Agrees on whether all ranks can continue. */
static int agree(MPI_Comm communicator, bool mine, bool *all)
{
    int good = mine;
    MPI_Request request;
    int error = MPI_Iallreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, communicator, &request);
    if (error == MPI_SUCCESS)
        error = MPI_Wait(&request, MPI_STATUS_IGNORE);
    *all = error == MPI_SUCCESS && good != 0;
    return error;
}

static void fill_transport(struct connection *connection, uint32_t rank, uint32_t ranks)
{
    connection->transport = (turbidite_transport){
        .struct_size = sizeof(turbidite_transport),
        .abi_version = TURBIDITE_ABI_VERSION,
        .context = connection,
        .rank = rank,
        .ranks = ranks,
        .nodes = NULL,
        .send = outbox_send,
        .completed = outbox_completed,
        .poll = inbox_poll,
        .release = inbox_release,
        .describe = describe,
        .abandon = abandon,
    };
}

/* Opens the transport on the duplicated communicator, which the caller frees on failure. */
static int connect_ranks(MPI_Comm communicator, turbidite_transport **transport)
{
    int rank, ranks;
    int error = MPI_Comm_rank(communicator, &rank);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_size(communicator, &ranks);
    if (error != MPI_SUCCESS)
        return fail("asking for the number of ranks", error, true);
    struct connection *connection = calloc(1, sizeof *connection);
    bool mine = connection != NULL && allocate(connection, (uint32_t)ranks);
    bool all;
    error = agree(communicator, mine, &all);
    if (!all) {
        if (connection != NULL)
            free_connection(connection);
        return fail(mine ? "opening the transport on another rank" : "no memory for the transport",
                    error != MPI_SUCCESS ? error : MPI_ERR_NO_MEM, !mine || error != MPI_SUCCESS);
    }
    fill_transport(connection, (uint32_t)rank, (uint32_t)ranks);
    connection->communicator = communicator;
    bool several;
    if (topology_find(connection, &several) != 0) {
        snprintf(last_error, sizeof last_error, "%s", connection->description);
        /* All ranks refuse rank 0's environment. */
        bool is_refusal = connection->failure == 0;
        free_connection(connection);
        return report(is_refusal ? TURBIDITE_USAGE : TURBIDITE_FAILED, !is_refusal || rank == 0);
    }
    if (several)
        connection->transport.nodes = connection->nodes;
    *transport = &connection->transport;
    return TURBIDITE_OK;
}

int turbidite_mpi_open(MPI_Comm communicator, turbidite_transport **transport)
{
    if (transport == NULL)
        return refuse("turbidite_mpi_open: the pointer for the transport is NULL");
    *transport = NULL;
    const char *why = obstacle();
    if (why != NULL)
        return refuse(why);
    int between = 0;
    if (communicator == MPI_COMM_NULL || MPI_Comm_test_inter(communicator, &between) != MPI_SUCCESS || between)
        return refuse("turbidite_mpi_open takes an intracommunicator");
    MPI_Comm copy;
    int error = duplicate(communicator, &copy);
    if (error != MPI_SUCCESS)
        return fail("duplicating the communicator", error, true);
    int status = connect_ranks(copy, transport);
    if (status != TURBIDITE_OK)
        MPI_Comm_free(&copy);
    return status;
}

int turbidite_mpi_open_fortran(turbidite_mpi_fint communicator, turbidite_transport **transport)
{
#ifdef MPI_ABI_VERSION
    return turbidite_mpi_open(MPI_Comm_fromint(communicator), transport);
#else
    return turbidite_mpi_open(MPI_Comm_f2c(communicator), transport);
#endif
}

/* Completes this rank's sends, and receives and discards arrived messages. */
static void drain(struct connection *connection)
{
    const void *message;
    size_t bytes;
    while (outbox_completed(connection) != NULL)
        continue;
    for (int32_t channel = 0; channel < CHANNELS; channel++)
        while (inbox_poll(connection, channel, &message, &bytes) > 0)
            inbox_release(connection, message);
}

/*
 * Synchronises the ranks before closing. Learns how many messages were sent to this rank, and drains until all of them
 * have arrived and all of this rank's sends are complete. No message is then in flight from or to this rank. Returns
 * false if this is impossible because a rank has failed.
 */
static bool settle(struct connection *connection)
{
    uint32_t ranks = connection->transport.ranks;
    /* Two numbers per rank: messages sent to the rank, and number of senders that have failed. */
    uint64_t *farewell = malloc(2 * (size_t)ranks * sizeof *farewell);
    uint64_t owed[2] = {0, 0};
    if (farewell == NULL) {
        connection_fail(connection, "closing the transport: no memory", MPI_ERR_NO_MEM);
        return false;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        farewell[2 * rank] = connection->outbox.sent[rank];
        farewell[2 * rank + 1] = connection->failure != 0;
    }
    MPI_Request request;
    int said = 0;
    int error =
        MPI_Ireduce_scatter_block(farewell, owed, 2, MPI_UINT64_T, MPI_SUM, connection->communicator, &request);
    while (error == MPI_SUCCESS && !said) {
        drain(connection);
        error = MPI_Test(&request, &said, MPI_STATUS_IGNORE);
    }
    if (error != MPI_SUCCESS) {
        /* MPI may still read the numbers, so they are not freed. */
        connection_fail(connection, "closing the transport", error);
        return false;
    }
    free(farewell);
    if (owed[1] > 0) {
        connection_fail(connection, "closing the transport: it had failed on a rank", MPI_ERR_OTHER);
        return false;
    }
    while (connection->failure == 0 && (connection->inbox.received < owed[0] || outbox_count(&connection->outbox) > 0))
        drain(connection);
    return connection->failure == 0;
}

int turbidite_mpi_close(turbidite_transport *transport)
{
    if (transport == NULL)
        return TURBIDITE_OK;
    const char *why = obstacle();
    if (why != NULL)
        return refuse(why);
    struct connection *connection = transport->context;
    inbox_release_all(&connection->inbox);
    if (connection->abandoned) {
        /* Messages are not drained, since other ranks would conclude that this rank still receives. */
        snprintf(last_error, sizeof last_error, "%s", connection->description);
        outbox_abandon(&connection->outbox);
        /* The call that abandoned it has printed why. */
        return report(TURBIDITE_FAILED, false);
    }
    bool had_failed = connection->failure != 0;
    if (!settle(connection)) {
        snprintf(last_error, sizeof last_error, "%s", connection->description);
        outbox_abandon(&connection->outbox);
        /* MPI may still write to matched messages. These, the struct and the communicator are not freed before
         * MPI_Finalize. */
        return report(TURBIDITE_FAILED, had_failed || connection->transport.rank == 0);
    }
    int error = MPI_Comm_free(&connection->communicator);
    free_connection(connection);
    return error == MPI_SUCCESS ? TURBIDITE_OK : fail("closing the transport", error, true);
}
