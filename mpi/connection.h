/*
 * The parts of libturbidite_mpi and what they share. Not installed.
 *
 * transport.c   open and close, the struct of functions
 * topology.c    which rank is on which node
 * send.c        messages on their way out, credit
 * receive.c     posted receives, messages that are lent
 *
 * Three tags. CONTROL carries control messages as they are. DATA carries data messages of 1 to SLOT_BYTES bytes as
 * they are; any other data message travels on BODY, and an empty message on DATA holds its place in the order. MPI
 * keeps the order per pair and tag, so the n-th empty message of a rank belongs to its n-th body.
 *
 * Every request is tested alone: MPICH aborts the program when a request fails inside of MPI_Testsome, whatever the
 * error handler of its communicator.
 */
#ifndef TURBIDITE_MPI_CONNECTION_H
#define TURBIDITE_MPI_CONNECTION_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "turbidite_mpi.h"

enum {
    TAG_CONTROL = 1,
    TAG_DATA = 2,
    TAG_BODY = 3,

    /* A batch of 32 KiB with room for its header. */
    SLOT_BYTES = 36 << 10,
    /* Receives posted for data. With the memory of a slot that is 2.25 MiB. */
    SLOTS = 64,

    /* Data messages on their way out: in total, and to one rank (fewer ranks may have more each). */
    DATA_IN_FLIGHT = 64,
    DATA_PER_RANK_LEAST = 4,
    DATA_PER_RANK_MOST = 16,
    /* Requests tested by one call of `completed`, for each channel. */
    TESTED_AT_ONCE = 16,

    /* Control messages that MPI has matched and nobody has polled; a message larger than all comes alone. */
    CONTROL_MATCHED = 64,
    CONTROL_MATCHED_BYTES = 64 << 20,
};

/* One request on its way out. An empty message that announces a body has no token: nobody waits for it. */
struct departure {
    MPI_Request request;
    void *token;
    uint32_t to;
};

/* Requests on their way out, in no order: one that is done is replaced by the last. */
struct departures {
    struct departure *all;
    size_t count;
    size_t capacity;
    size_t cursor; /* where testing goes on */
};

struct outbox {
    struct departures control; /* grows: control messages are always accepted */
    struct departures data;    /* two requests for each of DATA_IN_FLIGHT messages */
    uint32_t *data_to;         /* data messages on their way, per rank */
    uint32_t data_per_rank;
    uint32_t data_in_flight;
    uint64_t *sent; /* messages accepted, both channels, per rank: what close has to wait for */
};

/* A message in memory of its own: of CONTROL or BODY. */
struct parcel {
    struct parcel *previous;
    struct parcel *next;
    MPI_Request request; /* MPI_REQUEST_NULL when all is there */
    int source;
    int32_t slot; /* of the empty message that announced it, or -1 */
    size_t bytes;
    alignas(16) unsigned char message[];
};

struct parcels {
    struct parcel *first;
    struct parcel *last;
    size_t count;
    size_t bytes;
};

/* One posted receive of DATA. */
struct slot {
    MPI_Request request;
    int source;
    size_t bytes;
    struct parcel *body; /* for an empty message, once MPI has matched its body */
    bool lent;
};

/* A slot's number is in exactly one of: `posted`, `arrived`, or lent (itself, or as the slot of a lent parcel). */
struct inbox {
    unsigned char *memory; /* SLOTS pieces of SLOT_BYTES */
    struct slot slots[SLOTS];
    uint32_t posted[SLOTS]; /* a ring, in the order of posting, in which MPI fills them */
    uint32_t posted_first;
    uint32_t posted_count;
    uint32_t arrived[SLOTS]; /* in the order of arrival: what waits for a body, or behind one of the same rank */
    uint32_t arrived_count;
    struct parcels control; /* matched, in this order */
    struct parcels lent;
    uint64_t received; /* messages handed out, both channels */
};

/* The context behind a transport. */
struct connection {
    turbidite_transport transport;
    MPI_Comm communicator;
    int32_t failure; /* 0, or the negative number that every function answers from now on */
    char description[MPI_MAX_ERROR_STRING + 128];
    uint32_t *nodes;
    struct outbox outbox;
    struct inbox inbox;
};

/* transport.c */

/* Notes a failure that nothing mends and answers its number; `error` is what MPI answered. The first one stays. */
int32_t connection_fail(struct connection *connection, const char *what, int error);
/* Notes a wrong call; the connection goes on. */
int32_t connection_refuse(struct connection *connection, const char *what, int error);
/* The duplicate of the communicator, for collectives of the preload library. */
MPI_Comm turbidite_mpi_communicator(const turbidite_transport *transport);

/* topology.c: fills `nodes`, collectively, and says whether there is more than one. 0 or a negative number. */
int32_t topology_find(struct connection *connection, bool *several);

/* send.c */
bool outbox_allocate(struct outbox *outbox, uint32_t ranks);
void outbox_free(struct outbox *outbox);
int32_t outbox_send(void *context, uint32_t to, int32_t channel, const void *message, size_t bytes, void *token);
void *outbox_completed(void *context);
/* Lets go of requests that will not complete. */
void outbox_abandon(struct outbox *outbox);

/* receive.c */
bool inbox_allocate(struct inbox *inbox);
void inbox_free(struct inbox *inbox);
int32_t inbox_post(struct connection *connection);
int32_t inbox_poll(void *context, int32_t channel, const void **message, size_t *bytes);
void inbox_release(void *context, const void *message);
/* Gives back everything that is lent. */
void inbox_release_all(struct connection *connection);
/* Takes back the posted receives. False when MPI may still write to their memory. */
bool inbox_cancel(struct connection *connection);

#endif /* TURBIDITE_MPI_CONNECTION_H */
