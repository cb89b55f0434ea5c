/*
 * Messages on their way in.
 *
 * Data goes into posted receives from any rank. All of them look alike to MPI, so it fills them in the order in which
 * they were posted: only the oldest has to be tested, and messages come out in the order of their matching, which is
 * that of their sending for each rank. One that was announced is fetched as its turn comes; until it is there, later
 * ones of the same rank wait, those of others pass.
 *
 * Control messages differ too much in size for that: they are matched first and then received into memory of their
 * size. A large one that is still on its way holds up only what its own rank sent later.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"

bool inbox_allocate(struct inbox *inbox)
{
    inbox->memory = malloc((size_t)SLOTS * SLOT_BYTES);
    for (size_t index = 0; index < SLOTS; index++)
        inbox->slots[index].request = MPI_REQUEST_NULL;
    return inbox->memory != NULL;
}

static void append(struct parcels *parcels, struct parcel *parcel)
{
    parcel->previous = parcels->last;
    parcel->next = NULL;
    *(parcels->last != NULL ? &parcels->last->next : &parcels->first) = parcel;
    parcels->last = parcel;
    parcels->count++;
    parcels->bytes += parcel->bytes;
}

static void unlink_parcel(struct parcels *parcels, struct parcel *parcel)
{
    *(parcel->previous != NULL ? &parcel->previous->next : &parcels->first) = parcel->next;
    *(parcel->next != NULL ? &parcel->next->previous : &parcels->last) = parcel->previous;
    parcels->count--;
    parcels->bytes -= parcel->bytes;
}

static void free_parcels(struct parcels *parcels)
{
    while (parcels->first != NULL) {
        struct parcel *parcel = parcels->first;
        unlink_parcel(parcels, parcel);
        free(parcel);
    }
}

void inbox_free(struct inbox *inbox)
{
    free_parcels(&inbox->control);
    free_parcels(&inbox->lent);
    for (size_t index = 0; index < SLOTS; index++)
        free(inbox->slots[index].body);
    free(inbox->memory);
}

static int32_t post(struct connection *connection, uint32_t index)
{
    struct inbox *inbox = &connection->inbox;
    struct slot *slot = &inbox->slots[index];
    slot->body = NULL;
    slot->lent = false;
    int error = MPI_Irecv(inbox->memory + (size_t)index * SLOT_BYTES, SLOT_BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG_DATA,
                          connection->communicator, &slot->request);
    if (error != MPI_SUCCESS) {
        slot->request = MPI_REQUEST_NULL;
        return connection_fail(connection, "posting a receive", error);
    }
    inbox->posted[(inbox->posted_first + inbox->posted_count++) % SLOTS] = index;
    return 0;
}

int32_t inbox_post(struct connection *connection)
{
    int32_t answer = 0;
    for (uint32_t index = 0; answer == 0 && index < SLOTS; index++)
        answer = post(connection, index);
    return answer;
}

/* 1 when all of a parcel is there, 0 when not yet. */
static int32_t test_parcel(struct connection *connection, struct parcel *parcel)
{
    int complete = 1;
    int error = MPI_SUCCESS;
    if (parcel->request != MPI_REQUEST_NULL)
        error = MPI_Test(&parcel->request, &complete, MPI_STATUS_IGNORE);
    return error == MPI_SUCCESS ? complete != 0 : connection_fail(connection, "receiving a message", error);
}

/* Begins to receive a message of `tag`. 1 and its parcel, 0 when there is none. */
static int32_t match(struct connection *connection, int source, int tag, struct parcel **parcel)
{
    const char *what = tag == TAG_CONTROL ? "matching a control message" : "matching a data message";
    int found, bytes;
    MPI_Message message;
    MPI_Status status;
    int error = MPI_Improbe(source, tag, connection->communicator, &found, &message, &status);
    if (error == MPI_SUCCESS && found)
        error = MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (error != MPI_SUCCESS)
        return connection_fail(connection, what, error);
    if (!found)
        return 0;
    struct parcel *matched = bytes >= 0 ? malloc(sizeof *matched + (size_t)bytes) : NULL;
    if (matched == NULL)
        return connection_fail(connection, "receiving a message: no memory", MPI_ERR_NO_MEM);
    error = MPI_Imrecv(matched->message, bytes, MPI_BYTE, &message, &matched->request);
    if (error != MPI_SUCCESS) {
        free(matched);
        return connection_fail(connection, what, error);
    }
    matched->source = status.MPI_SOURCE;
    matched->slot = -1;
    matched->bytes = (size_t)bytes;
    *parcel = matched;
    return 1;
}

/* 1 when the parcel may be handed out: it is there, and nothing that its rank sent before waits. */
static int32_t control_ready(struct connection *connection, struct parcel *parcel)
{
    for (struct parcel *earlier = parcel->previous; earlier != NULL; earlier = earlier->previous)
        if (earlier->source == parcel->source)
            return 0;
    return test_parcel(connection, parcel);
}

static int32_t lend_parcel(struct connection *connection, struct parcel *parcel, const void **message, size_t *bytes)
{
    append(&connection->inbox.lent, parcel);
    connection->inbox.received++;
    *message = parcel->message;
    *bytes = parcel->bytes;
    return 1;
}

static int32_t poll_control(struct connection *connection, const void **message, size_t *bytes)
{
    struct parcels *matched = &connection->inbox.control;
    for (struct parcel *parcel = matched->first; parcel != NULL; parcel = parcel->next) {
        int32_t ready = control_ready(connection, parcel);
        if (ready < 0)
            return ready;
        if (ready > 0) {
            unlink_parcel(matched, parcel);
            return lend_parcel(connection, parcel, message, bytes);
        }
    }
    while (matched->count < CONTROL_MATCHED && matched->bytes < CONTROL_MATCHED_BYTES) {
        struct parcel *parcel;
        int32_t answer = match(connection, MPI_ANY_SOURCE, TAG_CONTROL, &parcel);
        if (answer <= 0)
            return answer;
        append(matched, parcel);
        answer = control_ready(connection, parcel);
        if (answer < 0)
            return answer;
        if (answer > 0) {
            unlink_parcel(matched, parcel);
            return lend_parcel(connection, parcel, message, bytes);
        }
    }
    return 0;
}

/* Moves the oldest posted receive to `arrived`, if it is complete: 1, else 0. */
static int32_t take_arrival(struct connection *connection)
{
    struct inbox *inbox = &connection->inbox;
    if (inbox->posted_count == 0)
        return 0;
    uint32_t index = inbox->posted[inbox->posted_first];
    struct slot *slot = &inbox->slots[index];
    int complete, bytes;
    MPI_Status status;
    int error = MPI_Test(&slot->request, &complete, &status);
    if (error == MPI_SUCCESS && !complete)
        return 0;
    if (error == MPI_SUCCESS)
        error = MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (error != MPI_SUCCESS)
        return connection_fail(connection, "receiving a data message", error);
    slot->source = status.MPI_SOURCE;
    slot->bytes = (size_t)bytes;
    inbox->posted_first = (inbox->posted_first + 1) % SLOTS;
    inbox->posted_count--;
    inbox->arrived[inbox->arrived_count++] = index;
    return 1;
}

/* 1 when the message at `place` of `arrived` may be handed out, its body included. */
static int32_t data_ready(struct connection *connection, uint32_t place)
{
    struct inbox *inbox = &connection->inbox;
    uint32_t index = inbox->arrived[place];
    struct slot *slot = &inbox->slots[index];
    for (uint32_t earlier = 0; earlier < place; earlier++)
        if (inbox->slots[inbox->arrived[earlier]].source == slot->source)
            return 0;
    if (slot->bytes > 0)
        return 1;
    if (slot->body == NULL) {
        int32_t answer = match(connection, slot->source, TAG_BODY, &slot->body);
        if (answer <= 0)
            return answer;
        slot->body->slot = (int32_t)index;
    }
    return test_parcel(connection, slot->body);
}

static int32_t lend_arrival(struct connection *connection, uint32_t place, const void **message, size_t *bytes)
{
    struct inbox *inbox = &connection->inbox;
    uint32_t index = inbox->arrived[place];
    struct slot *slot = &inbox->slots[index];
    inbox->arrived_count--;
    memmove(&inbox->arrived[place], &inbox->arrived[place + 1],
            (inbox->arrived_count - place) * sizeof *inbox->arrived);
    struct parcel *body = slot->body;
    if (body != NULL) {
        slot->body = NULL;
        return lend_parcel(connection, body, message, bytes);
    }
    slot->lent = true;
    inbox->received++;
    *message = inbox->memory + (size_t)index * SLOT_BYTES;
    *bytes = slot->bytes;
    return 1;
}

static int32_t poll_data(struct connection *connection, const void **message, size_t *bytes)
{
    struct inbox *inbox = &connection->inbox;
    for (uint32_t place = 0;; place++) {
        if (place == inbox->arrived_count) {
            int32_t answer = take_arrival(connection);
            if (answer <= 0)
                return answer;
        }
        int32_t ready = data_ready(connection, place);
        if (ready < 0)
            return ready;
        if (ready > 0)
            return lend_arrival(connection, place, message, bytes);
    }
}

int32_t inbox_poll(void *context, int32_t channel, const void **message, size_t *bytes)
{
    struct connection *connection = context;
    if (connection->failure != 0)
        return connection->failure;
    if (channel == TURBIDITE_CONTROL)
        return poll_control(connection, message, bytes);
    if (channel == TURBIDITE_DATA)
        return poll_data(connection, message, bytes);
    return connection_refuse(connection, "poll: no such channel", MPI_ERR_ARG);
}

static void release_parcel(struct connection *connection, struct parcel *parcel)
{
    int32_t slot = parcel->slot;
    unlink_parcel(&connection->inbox.lent, parcel);
    free(parcel);
    if (slot >= 0)
        post(connection, (uint32_t)slot);
}

/* A receive that cannot be posted again makes the next call of another function fail. */
void inbox_release(void *context, const void *message)
{
    struct connection *connection = context;
    struct inbox *inbox = &connection->inbox;
    uintptr_t first = (uintptr_t)inbox->memory;
    uintptr_t address = (uintptr_t)message;
    if (address >= first && address < first + (size_t)SLOTS * SLOT_BYTES)
        post(connection, (uint32_t)((address - first) / SLOT_BYTES));
    else
        release_parcel(connection, (struct parcel *)(address - offsetof(struct parcel, message)));
}

void inbox_release_all(struct connection *connection)
{
    struct inbox *inbox = &connection->inbox;
    while (inbox->lent.first != NULL)
        release_parcel(connection, inbox->lent.first);
    for (uint32_t index = 0; index < SLOTS; index++)
        if (inbox->slots[index].lent)
            post(connection, index);
}

bool inbox_cancel(struct connection *connection)
{
    bool cancelled = true;
    for (uint32_t index = 0; index < SLOTS; index++) {
        MPI_Request *request = &connection->inbox.slots[index].request;
        if (*request == MPI_REQUEST_NULL)
            continue;
        int error = MPI_Cancel(request);
        if (error == MPI_SUCCESS)
            error = MPI_Wait(request, MPI_STATUS_IGNORE);
        cancelled = cancelled && error == MPI_SUCCESS;
    }
    return cancelled;
}
