/*
 * The parts of libturbidite_mpi and their shared state. Not installed.
 *
 * transport.c   open and close, the struct of functions
 * topology.c    the node of every rank
 * send.c        outgoing messages, credit
 * receive.c     incoming messages, and those that are lent
 *
 * Every channel has a tag, and messages travel unchanged. The channels for batches have the same limits, each its own:
 * a full channel does not block the others. Every incoming message is matched first (MPI_Improbe) and then received
 * into memory of its size. Receives posted in advance, from any rank, would save a copy of small messages, but do not
 * work: MPICH 5.0.2 over UCX loses their completions, and everything behind them waits for ever. A matched message also
 * names its sender, so that a transfer that hangs blocks no other rank, and a message may have any size.
 *
 * Every request is tested individually: MPICH aborts the program when a request fails inside MPI_Testsome, whatever the
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
    /* TURBIDITE_CONTROL, then the channels for batches: TURBIDITE_DATA, TURBIDITE_OUTWARD, TURBIDITE_ACROSS. These are
     * also the tags. */
    CHANNELS = 4,

    /* Outgoing messages per channel for batches: in total, and to one rank (more per rank if there are few ranks). */
    DATA_IN_FLIGHT = 64,
    DATA_PER_RANK_LEAST = 4,
    DATA_PER_RANK_MOST = 16,
    /* Number of requests that one call of `completed` tests, per channel. */
    TESTED_AT_ONCE = 16,

    /* Incoming messages per channel for batches, matched or lent. With batches of 32 KiB that is 2 MiB. */
    DATA_HELD = 64,
    /* Control messages that are matched and not polled: in number, and in bytes; a larger one is matched alone. */
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
    struct departures channel[CHANNELS]; /* control grows, since it is always accepted; DATA_IN_FLIGHT for the others */
    uint32_t *data_to[CHANNELS];         /* batches in flight, per rank; NULL for control */
    uint32_t data_per_rank;
    uint64_t *sent; /* messages accepted, all channels, per rank: close waits for them */
};

/* An incoming message, or a lent one. */
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
    int32_t failure; /* 0, or the negative number that every function returns from now on */
    bool abandoned;  /* no other rank is waited for */
    char description[MPI_MAX_ERROR_STRING + 128];
    uint32_t *nodes;
    struct outbox outbox;
    struct inbox inbox;
};

/* transport.c */

/* Records a permanent failure and returns its number; `error` is MPI's return value. The first failure stays. */
int32_t connection_fail(struct connection *connection, const char *what, int error);
/* Records an invalid call; the connection continues. */
int32_t connection_refuse(struct connection *connection, const char *what, int error);
/* Returns the duplicate of the communicator, for collectives of the preload library. */
MPI_Comm turbidite_mpi_communicator(const turbidite_transport *transport);

/* topology.c: fills `nodes` and determines whether there is more than one. Collective. Returns 0 or a negative
 * number. */
int32_t topology_find(struct connection *connection, bool *several);

/* send.c */
bool outbox_allocate(struct outbox *outbox, uint32_t ranks);
void outbox_free(struct outbox *outbox);
int32_t outbox_send(void *context, uint32_t to, int32_t channel, const void *message, size_t bytes, void *token);
void *outbox_completed(void *context);
/* Returns the number of outgoing messages. */
size_t outbox_count(const struct outbox *outbox);
/* Drops messages that will not be sent. */
void outbox_abandon(struct outbox *outbox);

/* receive.c */
int32_t inbox_poll(void *context, int32_t channel, const void **message, size_t *bytes);
void inbox_release(void *context, const void *message);
/* Releases all lent messages. */
void inbox_release_all(struct inbox *inbox);
/* Frees everything; no message may be incoming. */
void inbox_free(struct inbox *inbox);

#endif /* TURBIDITE_MPI_CONNECTION_H */
