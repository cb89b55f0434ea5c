/*
 * The parts of libturbidite_mpi and what they share. Not installed.
 *
 * transport.c   open and close, the struct of functions
 * topology.c    which rank is on which node
 * send.c        messages on their way out, credit
 * receive.c     messages on their way in, and those that are lent
 *
 * Every channel has a tag, and messages travel as they are. The channels for batches have the same limits, each for
 * itself: one that is full holds up none of the others. Whatever comes in is matched first (MPI_Improbe)
 * and then received into memory of its size. Receives posted ahead, from any rank, would save a copy of small
 * messages, but do not work: MPICH 5.0.2 over UCX loses their completions, and everything behind them waits for ever.
 * A matched message also tells its sender, so that a transfer that hangs holds up nobody else, and a message may have
 * any size.
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
    /* TURBIDITE_CONTROL, then those for batches: TURBIDITE_DATA, TURBIDITE_OUTWARD, TURBIDITE_ACROSS. The tags as well. */
    CHANNELS = 4,

    /* Messages of one channel for batches on their way out: in total, and to one rank (with few ranks, more each). */
    DATA_IN_FLIGHT = 64,
    DATA_PER_RANK_LEAST = 4,
    DATA_PER_RANK_MOST = 16,
    /* Requests tested by one call of `completed`, for each channel. */
    TESTED_AT_ONCE = 16,

    /* Messages of one channel for batches here: matched or lent. With batches of 32 KiB that is 2 MiB. */
    DATA_HELD = 64,
    /* Control messages that are matched and not polled: in number, and in bytes; a larger one comes alone. */
    CONTROL_MATCHED = 64,
    CONTROL_MATCHED_BYTES = 64 << 20,
};

/* One message on its way out. */
struct departure {
    MPI_Request request;
    void *token;
    uint32_t to;
};

/* Messages on their way out, in no order: one that is done is replaced by the last. */
struct departures {
    struct departure *all;
    size_t count;
    size_t capacity;
    size_t cursor; /* where testing goes on */
};

struct outbox {
    struct departures channel[CHANNELS]; /* control grows, since it is always accepted; DATA_IN_FLIGHT for the others */
    uint32_t *data_to[CHANNELS];         /* batches on their way, per rank; NULL for control */
    uint32_t data_per_rank;
    uint64_t *sent; /* messages accepted, all channels, per rank: what close has to wait for */
};

/* A message on its way in, or lent. */
struct parcel {
    struct parcel *previous;
    struct parcel *next;
    MPI_Request request; /* MPI_REQUEST_NULL when all is there */
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

/* The context behind a transport. */
struct connection {
    turbidite_transport transport;
    MPI_Comm communicator;
    int32_t failure; /* 0, or the negative number that every function answers from now on */
    bool abandoned;  /* no other rank is waited for any more */
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
/* Messages on their way out. */
size_t outbox_count(const struct outbox *outbox);
/* Lets go of messages that will not leave. */
void outbox_abandon(struct outbox *outbox);

/* receive.c */
int32_t inbox_poll(void *context, int32_t channel, const void **message, size_t *bytes);
void inbox_release(void *context, const void *message);
/* Gives back everything that is lent. */
void inbox_release_all(struct inbox *inbox);
/* Frees everything; nothing may be on its way in. */
void inbox_free(struct inbox *inbox);

#endif /* TURBIDITE_MPI_CONNECTION_H */
