#include "messages.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rank, ranks;

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

static uint64_t seed_of(uint32_t from, uint32_t to, int32_t channel, uint32_t number)
{
    return mix(((uint64_t)from << 48 | (uint64_t)to << 32 | number) * 2 + (uint64_t)channel + 1);
}

size_t size_of(uint32_t from, uint32_t to, int32_t channel, uint32_t number)
{
    uint64_t random = seed_of(from, to, channel, number);
    uint64_t kind = random % 64;
    random = mix(random);
    if (channel == TURBIDITE_CONTROL)
        return kind == 0 ? 100000 + random % 300000 : kind < 16 ? 10 : 10 + random % 2000;
    if (kind < 4)
        return 0;
    if (kind < 8)
        return BATCH_BYTES + random % 2;
    if (kind < 12)
        return BATCH_BYTES + 1 + random % 60000;
    return kind < 36 ? 8 + random % 300 : 8 + random % BATCH_BYTES;
}

void fill(unsigned char *message, size_t bytes, uint32_t from, uint32_t to, int32_t channel, uint32_t number)
{
    struct header header = {from, number};
    uint64_t word = seed_of(from, to, channel, number);
    for (size_t place = 0; place < bytes; place += sizeof word) {
        memcpy(message + place, &word, bytes - place < sizeof word ? bytes - place : sizeof word);
        word = word * 6364136223846793005u + 1442695040888963407u;
    }
    if (bytes > 0)
        memcpy(message, &header, sizeof header);
}

struct outgoing *make(uint32_t to, int32_t channel, uint32_t number, size_t bytes)
{
    struct outgoing *outgoing = malloc(sizeof *outgoing + bytes);
    if (outgoing == NULL)
        fail("no memory");
    outgoing->bytes = bytes;
    fill(outgoing->message, bytes, (uint32_t)rank, to, channel, number);
    return outgoing;
}

void finish(struct outgoing *outgoing)
{
    memset(outgoing->message, 0xee, outgoing->bytes);
    free(outgoing);
}

bool send_message(const turbidite_transport *transport, uint32_t to, int32_t channel,
                  struct outgoing *outgoing, long *pending)
{
    int32_t answer = transport->send(transport->context, to, channel, outgoing->message, outgoing->bytes, outgoing);
    EXPECT(answer >= 0, "send: %d, %s", answer, transport->describe(transport->context));
    EXPECT(answer != TURBIDITE_NO_CREDIT || channel == TURBIDITE_DATA, "no credit for control");
    if (answer == TURBIDITE_SENT)
        finish(outgoing);
    else if (answer == TURBIDITE_PENDING)
        ++*pending;
    return answer != TURBIDITE_NO_CREDIT;
}

void complete_sends(const turbidite_transport *transport, long *pending)
{
    struct outgoing *outgoing;
    while ((outgoing = transport->completed(transport->context)) != NULL) {
        finish(outgoing);
        --*pending;
    }
}

bool poll_message(const turbidite_transport *transport, int32_t channel, const void **message, size_t *bytes)
{
    int32_t answer = transport->poll(transport->context, channel, message, bytes);
    EXPECT(answer == 0 || answer == 1, "poll: %d, %s", answer, transport->describe(transport->context));
    return answer == 1;
}
