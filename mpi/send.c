/*
 * Sends messages.
 *
 * Control messages are sent by MPI_Isend and always accepted. Every MPI copies small messages, so that their sends
 * complete at once. One test detects this, and such a message needs no copy of ours.
 *
 * Batches are sent by MPI_Issend, which completes only after the receiver has matched the message. The limits on
 * messages in flight are thus limits on unmatched messages. There is no other flow control.
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
    outbox->sent = calloc(ranks, sizeof *outbox->sent);
    bool allocated = outbox->sent != NULL;
    for (int32_t channel = TURBIDITE_DATA; channel < CHANNELS; channel++) {
        struct departures *departures = &outbox->channel[channel];
        departures->capacity = DATA_IN_FLIGHT;
        departures->all = malloc(departures->capacity * sizeof *departures->all);
        outbox->data_to[channel] = calloc(ranks, sizeof *outbox->data_to[channel]);
        allocated = allocated && departures->all != NULL && outbox->data_to[channel] != NULL;
    }
    return allocated;
}

void outbox_free(struct outbox *outbox)
{
    for (int32_t channel = 0; channel < CHANNELS; channel++) {
        free(outbox->channel[channel].all);
        free(outbox->data_to[channel]);
    }
    free(outbox->sent);
}

/* Reserves room for one more control message. */
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
    struct departures *control = &connection->outbox.channel[TURBIDITE_CONTROL];
    /* The room is reserved before the message is sent, since an unrecorded send could never be completed. */
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

static int32_t send_data(struct connection *connection, uint32_t to, int32_t channel, const void *message, int bytes,
                         void *token)
{
    struct outbox *outbox = &connection->outbox;
    struct departures *departures = &outbox->channel[channel];
    if (departures->count == departures->capacity || outbox->data_to[channel][to] == outbox->data_per_rank)
        return TURBIDITE_NO_CREDIT;
    MPI_Request request;
    int error = MPI_Issend(message, bytes, MPI_BYTE, (int)to, channel, connection->communicator, &request);
    if (error != MPI_SUCCESS)
        return connection_fail(connection, "sending a batch", error);
    add(departures, request, to, token);
    outbox->sent[to]++;
    outbox->data_to[channel][to]++;
    return TURBIDITE_PENDING;
}

int32_t outbox_send(void *context, uint32_t to, int32_t channel, const void *message, size_t bytes, void *token)
{
    struct connection *connection = context;
    if (connection->failure != 0)
        return connection->failure;
    if (to >= connection->transport.ranks || to == connection->transport.rank)
        return connection_refuse(connection, "send: no such other rank", MPI_ERR_RANK);
    if (token == NULL || (message == NULL && bytes > 0) || channel < 0 || channel >= CHANNELS)
        return connection_refuse(connection, "send: no token, no message or no such channel", MPI_ERR_ARG);
    if (bytes > INT_MAX)
        return connection_refuse(connection, "send: a message must be smaller than 2 GiB", MPI_ERR_COUNT);
    return channel == TURBIDITE_CONTROL ? send_control(connection, to, message, (int)bytes, token)
                                        : send_data(connection, to, channel, message, (int)bytes, token);
}

/* Tests some departures, continuing where the last call ended. Returns true and a completed departure, or false. */
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
    for (int32_t channel = 0; channel < CHANNELS && connection->failure == 0; channel++) {
        if (!test_some(connection, &outbox->channel[channel], &done))
            continue;
        if (channel != TURBIDITE_CONTROL)
            outbox->data_to[channel][done.to]--;
        return done.token;
    }
    return NULL;
}

size_t outbox_count(const struct outbox *outbox)
{
    size_t count = 0;
    for (int32_t channel = 0; channel < CHANNELS; channel++)
        count += outbox->channel[channel].count;
    return count;
}

void outbox_abandon(struct outbox *outbox)
{
    for (int32_t channel = 0; channel < CHANNELS; channel++) {
        struct departures *departures = &outbox->channel[channel];
        for (size_t index = 0; index < departures->count; index++)
            if (departures->all[index].request != MPI_REQUEST_NULL)
                MPI_Request_free(&departures->all[index].request);
    }
}
