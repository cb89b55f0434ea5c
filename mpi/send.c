/*
 * Messages on their way out.
 *
 * Control leaves by MPI_Isend and is always accepted. A small one is complete at once in every MPI, since MPI copies
 * it; one test finds that out, and the message is done without a copy of ours.
 *
 * Data leaves by MPI_Issend, which completes only when the receiver has matched the message. The limits on what is
 * in flight are thus limits on what the receivers have not taken yet: that is all the flow control there is.
 */
#include <limits.h>
#include <stdlib.h>

#include "connection.h"

bool outbox_allocate(struct outbox *outbox, uint32_t ranks)
{
    uint32_t share = DATA_IN_FLIGHT / (ranks > 1 ? ranks - 1 : 1);
    outbox->data_per_rank = share < DATA_PER_RANK_LEAST ? DATA_PER_RANK_LEAST : share;
    if (outbox->data_per_rank > DATA_PER_RANK_MOST)
        outbox->data_per_rank = DATA_PER_RANK_MOST;
    outbox->data.capacity = DATA_IN_FLIGHT;
    outbox->data.all = malloc(outbox->data.capacity * sizeof *outbox->data.all);
    outbox->data_to = calloc(ranks, sizeof *outbox->data_to);
    outbox->sent = calloc(ranks, sizeof *outbox->sent);
    return outbox->data.all != NULL && outbox->data_to != NULL && outbox->sent != NULL;
}

void outbox_free(struct outbox *outbox)
{
    free(outbox->control.all);
    free(outbox->data.all);
    free(outbox->data_to);
    free(outbox->sent);
}

/* Room for one more control message. */
static bool reserve(struct departures *departures)
{
    if (departures->count < departures->capacity)
        return true;
    size_t capacity = departures->capacity == 0 ? 64 : 2 * departures->capacity;
    struct departure *all = realloc(departures->all, capacity * sizeof *all);
    if (all == NULL)
        return false;
    departures->all = all;
    departures->capacity = capacity;
    return true;
}

static void add(struct departures *departures, MPI_Request request, uint32_t to, void *token)
{
    departures->all[departures->count++] = (struct departure){.request = request, .token = token, .to = to};
}

static int32_t send_control(struct connection *connection, uint32_t to, const void *message, int bytes, void *token)
{
    struct departures *control = &connection->outbox.control;
    /* Before the message is on its way: what is under way and not noted could never be completed. */
    if (!reserve(control))
        return connection_fail(connection, "sending a control message: no memory", MPI_ERR_NO_MEM);
    MPI_Request request;
    int done;
    int error = MPI_Isend(message, bytes, MPI_BYTE, (int)to, TURBIDITE_CONTROL, connection->communicator, &request);
    if (error == MPI_SUCCESS)
        error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS)
        return connection_fail(connection, "sending a control message", error);
    connection->outbox.sent[to]++;
    if (done)
        return TURBIDITE_SENT;
    add(control, request, to, token);
    return TURBIDITE_PENDING;
}

static int32_t send_data(struct connection *connection, uint32_t to, const void *message, int bytes, void *token)
{
    struct outbox *outbox = &connection->outbox;
    if (outbox->data.count == outbox->data.capacity || outbox->data_to[to] == outbox->data_per_rank)
        return TURBIDITE_NO_CREDIT;
    MPI_Request request;
    int error = MPI_Issend(message, bytes, MPI_BYTE, (int)to, TURBIDITE_DATA, connection->communicator, &request);
    if (error != MPI_SUCCESS)
        return connection_fail(connection, "sending a data message", error);
    add(&outbox->data, request, to, token);
    outbox->sent[to]++;
    outbox->data_to[to]++;
    return TURBIDITE_PENDING;
}

int32_t outbox_send(void *context, uint32_t to, int32_t channel, const void *message, size_t bytes, void *token)
{
    struct connection *connection = context;
    if (connection->failure != 0)
        return connection->failure;
    if (to >= connection->transport.ranks || to == connection->transport.rank)
        return connection_refuse(connection, "send: no such other rank", MPI_ERR_RANK);
    if (token == NULL || (message == NULL && bytes > 0) ||
        (channel != TURBIDITE_CONTROL && channel != TURBIDITE_DATA))
        return connection_refuse(connection, "send: no token, no message or no such channel", MPI_ERR_ARG);
    if (bytes > INT_MAX)
        return connection_refuse(connection, "send: a message has to be smaller than 2 GiB", MPI_ERR_COUNT);
    return channel == TURBIDITE_CONTROL ? send_control(connection, to, message, (int)bytes, token)
                                        : send_data(connection, to, message, (int)bytes, token);
}

/* Tests some departures, each time from where the last one ended. True and a departure that is done, if there is one.
 */
static bool test_some(struct connection *connection, struct departures *departures, struct departure *done)
{
    for (size_t tested = 0; tested < TESTED_AT_ONCE && departures->count > 0; tested++) {
        if (departures->cursor >= departures->count)
            departures->cursor = 0;
        struct departure *departure = &departures->all[departures->cursor];
        int complete;
        int error = MPI_Test(&departure->request, &complete, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS) {
            connection_fail(connection, "completing a send", error);
            return false;
        }
        if (!complete) {
            departures->cursor++;
            continue;
        }
        *done = *departure;
        *departure = departures->all[--departures->count];
        return true;
    }
    return false;
}

void *outbox_completed(void *context)
{
    struct connection *connection = context;
    struct outbox *outbox = &connection->outbox;
    struct departure done;
    if (connection->failure != 0)
        return NULL;
    if (test_some(connection, &outbox->control, &done))
        return done.token;
    if (connection->failure != 0 || !test_some(connection, &outbox->data, &done))
        return NULL;
    outbox->data_to[done.to]--;
    return done.token;
}

void outbox_abandon(struct outbox *outbox)
{
    struct departures *both[] = {&outbox->control, &outbox->data};
    for (size_t channel = 0; channel < 2; channel++)
        for (size_t index = 0; index < both[channel]->count; index++)
            if (both[channel]->all[index].request != MPI_REQUEST_NULL)
                MPI_Request_free(&both[channel]->all[index].request);
}
