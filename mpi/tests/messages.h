/*
 * Messages whose contents and sizes are computed from sender, receiver, channel and number, so that the receiver can
 * check them. A wrong message is reported, and the job is aborted.
 */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "turbidite_mpi.h"

enum { BATCH_BYTES = 36 << 10, CHANNELS = 2 };

/* Rank of this process and number of ranks. Both must be set before any function here is called. */
extern int rank, ranks;

/* The beginning of every message that is not empty. */
struct header {
    uint32_t from;
    uint32_t number;
};

struct outgoing {
    size_t bytes;
    unsigned char message[];
};

void fail(const char *format, ...);

#define EXPECT(condition, ...) \
    do {                       \
        if (!(condition))      \
            fail(__VA_ARGS__); \
    } while (0)

uint64_t mix(uint64_t value);

/* Returns the size of a message. Most are small control messages and full batches. Some sizes are at the limits, some
 * are far above, and some messages are empty. */
size_t size_of(uint32_t from, uint32_t to, int32_t channel, uint32_t number);

void fill(unsigned char *message, size_t bytes, uint32_t from, uint32_t to, int32_t channel, uint32_t number);

struct outgoing *make(uint32_t to, int32_t channel, uint32_t number, size_t bytes);

/* Overwrites a message whose send is complete according to the transport. If it is not, the receiver detects the
 * change. */
void finish(struct outgoing *outgoing);

bool send_message(const turbidite_transport *transport, uint32_t to, int32_t channel, struct outgoing *outgoing, long *pending);

void complete_sends(const turbidite_transport *transport, long *pending);

bool poll_message(const turbidite_transport *transport, int32_t channel, const void **message, size_t *bytes);

#endif
