/*
 * Messages whose contents and sizes follow from sender, receiver, channel and number, so that the receiver knows what
 * has to come next without being told. What is wrong is printed, and the job aborted.
 */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "turbidite_mpi.h"

enum { BATCH_BYTES = 36 << 10, CHANNELS = 2 };

/* Of this process; set before anything else here is used. */
extern int rank, ranks;

/* What every message but an empty one begins with. */
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

/* Mostly small control messages and full batches; some at the limits, some far beyond, some empty. */
size_t size_of(uint32_t from, uint32_t to, int32_t channel, uint32_t number);

void fill(unsigned char *message, size_t bytes, uint32_t from, uint32_t to, int32_t channel, uint32_t number);

struct outgoing *make(uint32_t to, int32_t channel, uint32_t number, size_t bytes);

/* Spoils a message that the transport says it is done with: if it is not, the receiver sees that. */
void finish(struct outgoing *outgoing);

bool send_message(const turbidite_transport *transport, uint32_t to, int32_t channel, struct outgoing *outgoing, long *pending);

void complete_sends(const turbidite_transport *transport, long *pending);

bool poll_message(const turbidite_transport *transport, int32_t channel, const void **message, size_t *bytes);

#endif
