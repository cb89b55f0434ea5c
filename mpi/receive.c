/*
 * Receives messages, in the same way on all channels. A message is matched in the order of sending, received into a
 * buffer of its size, lent to the caller and freed. A large message, or one of a busy sender, may take a long time. It
 * delays only later messages of the same sender on the same channel.
 *
 * The number of matched messages that have not been polled is bounded, and for batches also the number of lent
 * messages. All other messages remain with their senders.
 */
#include <stdlib.h>

#include "connection.h"

static void append(struct parcels *parcels, struct parcel *parcel)
{
    parcel->previous = parcels->last;
    parcel->next = NULL;
    *(parcels->last != NULL ? &parcels->last->next : &parcels->first) = parcel;
    parcels->last = parcel;
    parcels->count++;
    parcels->bytes += parcel->bytes;
}

static void take_out(struct parcels *parcels, struct parcel *parcel)
{
    *(parcel->previous != NULL ? &parcel->previous->next : &parcels->first) = parcel->next;
    *(parcel->next != NULL ? &parcel->next->previous : &parcels->last) = parcel->previous;
    parcels->count--;
    parcels->bytes -= parcel->bytes;
}

static void free_all(struct parcels *parcels)
{
    while (parcels->first != NULL) {
        struct parcel *parcel = parcels->first;
        take_out(parcels, parcel);
        free(parcel);
    }
}

void inbox_release_all(struct inbox *inbox)
{
    for (size_t channel = 0; channel < CHANNELS; channel++)
        free_all(&inbox->lent[channel]);
}

void inbox_free(struct inbox *inbox)
{
    inbox_release_all(inbox);
    for (size_t channel = 0; channel < CHANNELS; channel++)
        free_all(&inbox->matched[channel]);
}

/* Returns whether one more message of the channel may be matched. */
static bool has_room(const struct inbox *inbox, int32_t channel)
{
    const struct parcels *matched = &inbox->matched[channel];
    if (channel != TURBIDITE_CONTROL)
        return matched->count + inbox->lent[channel].count < DATA_HELD;
    return matched->count < CONTROL_MATCHED && matched->bytes < CONTROL_MATCHED_BYTES;
}

/* Starts receiving the next message, and appends its parcel to the matched parcels. Returns 1 and the parcel, or 0 if
 * there is none. */
static int32_t match(struct connection *connection, int32_t channel, struct parcel **parcel)
{
    int found, bytes;
    MPI_Message message;
    MPI_Status status;
    int error = MPI_Improbe(MPI_ANY_SOURCE, channel, connection->communicator, &found, &message, &status);
    if (error == MPI_SUCCESS && !found)
        return 0;
    if (error == MPI_SUCCESS)
        error = MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (error != MPI_SUCCESS)
        return connection_fail(connection, "matching a message", error);
    struct parcel *matched = bytes >= 0 ? malloc(sizeof *matched + (size_t)bytes) : NULL;
    if (matched == NULL)
        return connection_fail(connection, "receiving a message: no memory", MPI_ERR_NO_MEM);
    error = MPI_Imrecv(matched->message, bytes, MPI_BYTE, &message, &matched->request);
    if (error != MPI_SUCCESS) {
        free(matched);
        return connection_fail(connection, "receiving a message", error);
    }
    matched->source = status.MPI_SOURCE;
    matched->channel = channel;
    matched->bytes = (size_t)bytes;
    append(&connection->inbox.matched[channel], matched);
    *parcel = matched;
    return 1;
}

/* Returns 1 if a matched parcel may be lent, which means that it is complete and no earlier message of its sender is
 * pending. */
static int32_t is_ready(struct connection *connection, struct parcel *parcel)
{
    int complete;
    for (const struct parcel *earlier = parcel->previous; earlier != NULL; earlier = earlier->previous)
        if (earlier->source == parcel->source)
            return 0;
    int error = MPI_Test(&parcel->request, &complete, MPI_STATUS_IGNORE);
    return error == MPI_SUCCESS ? complete != 0 : connection_fail(connection, "receiving a message", error);
}

/* Finds the first parcel that may be lent, and matches as many messages as needed. Returns 1, or 0 if there is none. */
static int32_t find_ready(struct connection *connection, int32_t channel, struct parcel **parcel)
{
    const struct inbox *inbox = &connection->inbox;
    int32_t answer = 0;
    for (*parcel = inbox->matched[channel].first; *parcel != NULL; *parcel = (*parcel)->next) {
        answer = is_ready(connection, *parcel);
        if (answer != 0)
            return answer;
    }
    while (answer == 0 && has_room(inbox, channel)) {
        answer = match(connection, channel, parcel);
        if (answer <= 0)
            return answer;
        answer = is_ready(connection, *parcel);
    }
    return answer;
}

int32_t inbox_poll(void *context, int32_t channel, const void **message, size_t *bytes)
{
    struct connection *connection = context;
    struct inbox *inbox = &connection->inbox;
    struct parcel *parcel;
    if (connection->failure != 0)
        return connection->failure;
    if (channel < 0 || channel >= CHANNELS)
        return connection_refuse(connection, "poll: no such channel", MPI_ERR_ARG);
    int32_t answer = find_ready(connection, channel, &parcel);
    if (answer <= 0)
        return answer;
    take_out(&inbox->matched[channel], parcel);
    append(&inbox->lent[channel], parcel);
    inbox->received++;
    *message = parcel->message;
    *bytes = parcel->bytes;
    return 1;
}

void inbox_release(void *context, const void *message)
{
    struct connection *connection = context;
    struct parcel *parcel = (struct parcel *)((uintptr_t)message - offsetof(struct parcel, message));
    take_out(&connection->inbox.lent[parcel->channel], parcel);
    free(parcel);
}
