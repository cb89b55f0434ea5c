/*
 * The modules of libturbidite_mpi and their shared state. This header is not installed.
 *
 * transport.c   open and close, the struct of functions; uses the others
 * topology.c    the node of every rank
 * send.c        outgoing messages, credit
 * receive.c     incoming messages, and messages lent to the caller
 * connection.c  failures of the connection
 *
 * Every channel has its own MPI tag. Messages carry no additional header. Every batch channel has its own limits, so a
 * full channel does not block the others.
 *
 * Every incoming message is matched first (MPI_Improbe) and then received into a buffer of its size. A match names the
 * sender, so a stalled transfer blocks only later messages of that sender. Messages may have any size. Pre-posted
 * receives with MPI_ANY_SOURCE would save a copy of small messages, but MPICH 5.0.2 over UCX loses their completions
 * and thereby blocks all later messages.
 *
 * Every request is tested individually: MPICH aborts the program when a request fails inside MPI_Testsome, regardless
 * of the communicator's error handler.
 */
#ifndef TURBIDITE_MPI_CONNECTION_H
#define TURBIDITE_MPI_CONNECTION_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "turbidite_mpi.h"

enum {
    /* Number of channels: TURBIDITE_CONTROL, then the batch channels TURBIDITE_DATA, TURBIDITE_OUTWARD and
     * TURBIDITE_ACROSS. Channel numbers are also MPI tags. */
    CHANNELS = 4,

    /* Maximum number of outgoing messages per batch channel: in total, and to one rank. The limit per rank lies between
     * LEAST and MOST; fewer ranks have a higher limit. */
    DATA_IN_FLIGHT = 64,
    DATA_PER_RANK_LEAST = 4,
    DATA_PER_RANK_MOST = 16,
    /* Number of requests that one call of `completed` tests, per channel. */
    TESTED_AT_ONCE = 16,

    /* Maximum number of incoming messages per batch channel, matched or lent: 2 MiB with batches of 32 KiB. */
    DATA_HELD = 64,
    /* Limits on control messages that are matched but not yet polled: their number and total bytes. At either limit, no
     * further control message is matched. */
    CONTROL_MATCHED = 64,
    CONTROL_MATCHED_BYTES = 64 << 20,
};

/* An outgoing message. */
struct departure {
    MPI_Request request;
    void *token;
    uint32_t to;
};

/* Outgoing messages, unordered: a completed one is replaced by the last. */
struct departures {
    struct departure *all;
    size_t count;
    size_t capacity;
    size_t cursor; /* where the next test begins */
};

struct outbox {
    struct departures channel[CHANNELS]; /* control is unbounded; batch channels hold DATA_IN_FLIGHT messages */
    uint32_t *data_to[CHANNELS];         /* batches in flight, per rank; NULL for control */
    uint32_t data_per_rank;
    uint64_t *sent; /* messages accepted for each rank; close exchanges these counts to know when all have arrived */
};

/* An incoming or lent message. */
struct parcel {
    struct parcel *previous;
    struct parcel *next;
    MPI_Request request; /* MPI_REQUEST_NULL when complete */
    int source;
    int32_t channel;
    size_t bytes;
    alignas(16) unsigned char message[];
};

struct parcels {
    struct parcel *first;
    struct parcel *last;
    size_t count;
    size_t bytes;
};

struct inbox {
    struct parcels matched[CHANNELS]; /* in the order of matching */
    struct parcels lent[CHANNELS];
    uint64_t received; /* messages handed out, all channels */
};

/* The state of a transport. */
struct connection {
    turbidite_transport transport;
    MPI_Comm communicator;
    int32_t failure; /* 0, or the negative error code that every later call returns */
    bool abandoned;  /* close does not wait for other ranks */
    char description[MPI_MAX_ERROR_STRING + 128];
    uint32_t *nodes;
    struct outbox outbox;
    struct inbox inbox;
};

/* connection.c */

/* Writes what failed, and MPI's description of the error. */
void describe_error(char *text, size_t bytes, const char *what, int error);
/* Records a permanent failure; `error` is MPI's return value. Later failures are ignored. Returns the negative error
 * code of the first failure. */
int32_t connection_fail(struct connection *connection, const char *what, int error);
/* Records an invalid call. The connection stays usable. */
int32_t connection_refuse(struct connection *connection, const char *what, int error);

/* transport.c: returns the duplicate of the communicator, for collectives of the preload library. */
MPI_Comm turbidite_mpi_communicator(const turbidite_transport *transport);

/* topology.c: fills `nodes` and determines whether the ranks are on several nodes. Collective. Returns 0 or a negative
 * error code. */
int32_t topology_find(struct connection *connection, bool *several);

/* send.c */
bool outbox_allocate(struct outbox *outbox, uint32_t ranks);
void outbox_free(struct outbox *outbox);
int32_t outbox_send(void *context, uint32_t to, int32_t channel, const void *message, size_t bytes, void *token);
void *outbox_completed(void *context);
/* Returns the number of outgoing messages. */
size_t outbox_count(const struct outbox *outbox);
/* Frees the requests of outgoing messages without waiting for their completion. */
void outbox_abandon(struct outbox *outbox);

/* receive.c */
int32_t inbox_poll(void *context, int32_t channel, const void **message, size_t *bytes);
void inbox_release(void *context, const void *message);
/* Releases all lent messages. */
void inbox_release_all(struct inbox *inbox);
/* Frees the inbox. No receive may be pending. */
void inbox_free(struct inbox *inbox);

#endif /* TURBIDITE_MPI_CONNECTION_H */
