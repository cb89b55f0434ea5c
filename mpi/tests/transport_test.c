/*
 * Tests the transport by itself, between all ranks. Usage: transport_test MODE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { LENT_MOST = 8 };

/* ---- Traffic between all pairs ---- */

struct traffic {
    const turbidite_transport *transport;
    uint32_t each; /* messages from every rank to every other rank on each channel */
    uint32_t *sent[CHANNELS];
    uint32_t *next[CHANNELS]; /* number of the next expected message, per rank */
    uint64_t empty, received, refused;
    long pending;
    const void *lent[LENT_MOST];
    int lent_count;
    uint64_t random;
};

static uint64_t draw(struct traffic *traffic)
{
    return traffic->random = mix(traffic->random + 0x9e3779b97f4a7c15u);
}

/* Checks that a message is the next expected message of its sender. Empty messages do not identify their sender, so
 * they are counted at the end. */
static void check(struct traffic *traffic, int32_t channel, const void *message, size_t bytes)
{
    traffic->received++;
    if (bytes == 0) {
        traffic->empty++;
        return;
    }
    struct header header;
    EXPECT(bytes >= sizeof header, "a message of %zu bytes", bytes);
    memcpy(&header, message, sizeof header);
    EXPECT(header.from < (uint32_t)ranks, "a message from rank %u", header.from);
    uint32_t *next = &traffic->next[channel][header.from];
    while (*next < traffic->each && size_of(header.from, (uint32_t)rank, channel, *next) == 0)
        ++*next;
    EXPECT(header.number == *next, "channel %d: number %u of rank %u, expected %u", channel, header.number,
           header.from, *next);
    size_t expected = size_of(header.from, (uint32_t)rank, channel, *next);
    EXPECT(bytes == expected, "%zu bytes instead of %zu", bytes, expected);
    struct outgoing *twin = malloc(sizeof *twin + bytes);
    EXPECT(twin != NULL, "no memory");
    fill(twin->message, bytes, header.from, (uint32_t)rank, channel, *next);
    EXPECT(memcmp(twin->message, message, bytes) == 0, "message %u of rank %u has changed", *next, header.from);
    free(twin);
    ++*next;
}

/* Receives one message. Some messages are kept for a while and released in another order. */
static bool receive(struct traffic *traffic, int32_t channel)
{
    const turbidite_transport *transport = traffic->transport;
    const void *message;
    size_t bytes;
    if (!poll_message(transport, channel, &message, &bytes))
        return false;
    check(traffic, channel, message, bytes);
    if (traffic->lent_count == LENT_MOST || draw(traffic) % 4 != 0) {
        transport->release(transport->context, message);
    } else {
        traffic->lent[traffic->lent_count++] = message;
    }
    if (traffic->lent_count > 0 && draw(traffic) % 8 == 0) {
        int which = (int)(draw(traffic) % (uint64_t)traffic->lent_count);
        transport->release(transport->context, traffic->lent[which]);
        traffic->lent[which] = traffic->lent[--traffic->lent_count];
    }
    return true;
}

static uint64_t send_some(struct traffic *traffic)
{
    uint64_t count = 0;
    for (int tries = 0; tries < 8; tries++) {
        uint32_t to = (uint32_t)(draw(traffic) % (uint64_t)ranks);
        int32_t channel = (int32_t)(draw(traffic) % CHANNELS);
        uint32_t *number = &traffic->sent[channel][to];
        if (to == (uint32_t)rank || *number == traffic->each)
            continue;
        struct outgoing *outgoing = make(to, channel, *number, size_of((uint32_t)rank, to, channel, *number));
        if (send_message(traffic->transport, to, channel, outgoing, &traffic->pending)) {
            ++*number;
            count++;
        } else {
            traffic->refused++;
            free(outgoing);
        }
    }
    return count;
}

static void test_traffic(MPI_Comm communicator, uint32_t messages)
{
    turbidite_transport *transport;
    EXPECT(turbidite_mpi_open(communicator, &transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    EXPECT(transport->rank == (uint32_t)rank && transport->ranks == (uint32_t)ranks, "another rank");
    EXPECT(transport->struct_size == sizeof *transport && transport->abi_version == TURBIDITE_ABI_VERSION,
           "another ABI");
    struct traffic traffic = {.transport = transport, .random = (uint64_t)rank + 1};
    uint64_t others = (uint64_t)ranks - 1;
    traffic.each = others > 0 ? messages / (uint32_t)others : 0;
    for (int channel = 0; channel < CHANNELS; channel++) {
        traffic.sent[channel] = calloc((size_t)ranks, sizeof *traffic.sent[channel]);
        traffic.next[channel] = calloc((size_t)ranks, sizeof *traffic.next[channel]);
    }
    uint64_t total = CHANNELS * others * traffic.each, sent = 0, empty = 0;
    long pause = 0;
    while (sent < total || traffic.received < total || traffic.pending > 0) {
        sent += send_some(&traffic);
        complete_sends(transport, &traffic.pending);
        /* Occasionally a rank receives no messages for a while. */
        if (pause == 0 && draw(&traffic) % 500 == 0)
            pause = 100;
        if (pause > 0) {
            pause--;
            continue;
        }
        for (int count = 0; count < 4; count++)
            receive(&traffic, TURBIDITE_CONTROL);
        for (int count = 0; count < 4; count++)
            receive(&traffic, TURBIDITE_DATA);
    }
    for (int from = 0; from < ranks; from++)
        for (uint32_t number = 0; from != rank && number < traffic.each; number++)
            empty += size_of((uint32_t)from, (uint32_t)rank, TURBIDITE_DATA, number) == 0;
    EXPECT(traffic.empty == empty, "%llu empty messages instead of %llu", (unsigned long long)traffic.empty,
           (unsigned long long)empty);
    while (traffic.lent_count > 0)
        transport->release(transport->context, traffic.lent[--traffic.lent_count]);
    EXPECT(turbidite_mpi_close(transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    for (int channel = 0; channel < CHANNELS; channel++) {
        free(traffic.sent[channel]);
        free(traffic.next[channel]);
    }
    if (rank == 0)
        printf("traffic: %llu messages received by rank 0, credit refused %llu times\n",
               (unsigned long long)traffic.received, (unsigned long long)traffic.refused);
}

/* ---- A receiver that polls no data ---- */

enum { ECHOES = 50 };

/* MPI sends small messages without a handshake, and the receiver must buffer them. The transport must refuse these
 * messages as well. Half of the ranks send only small messages. */
static const size_t flood_sizes[4] = {200, 32 << 10, 2 * BATCH_BYTES, 200};

/* Sends until no more messages are accepted, while control messages travel to rank 0 and back. Returns the number of
 * accepted messages. */
static uint64_t flood(const turbidite_transport *transport, long *pending)
{
    uint64_t accepted = 0, tries = 0, refused_in_a_row = 0;
    uint32_t echoes = 0, asked = 0;
    /* Refusals count only after all control messages have returned. By then, all sends that can complete have
     * completed. */
    while (echoes < ECHOES || refused_in_a_row < 2000) {
        const void *message;
        size_t bytes;
        struct outgoing *outgoing = make(0, TURBIDITE_DATA, 0, flood_sizes[rank % 2 == 1 ? 0 : tries++ % 4]);
        if (send_message(transport, 0, TURBIDITE_DATA, outgoing, pending)) {
            accepted++;
            refused_in_a_row = 0;
        } else {
            free(outgoing);
            refused_in_a_row++;
        }
        EXPECT(accepted < 10000, "%llu messages accepted that nobody takes", (unsigned long long)accepted);
        if (asked == echoes && asked < ECHOES)
            send_message(transport, 0, TURBIDITE_CONTROL, make(0, TURBIDITE_CONTROL, asked++, 1000), pending);
        complete_sends(transport, pending);
        if (poll_message(transport, TURBIDITE_CONTROL, &message, &bytes)) {
            transport->release(transport->context, message);
            echoes++;
        }
    }
    return accepted;
}

/* Answers control messages and polls no data. */
static void echo(const turbidite_transport *transport, long *pending)
{
    for (uint32_t left = ECHOES * (uint32_t)(ranks - 1); left > 0;) {
        const void *message;
        size_t bytes;
        complete_sends(transport, pending);
        if (!poll_message(transport, TURBIDITE_CONTROL, &message, &bytes))
            continue;
        struct header header;
        memcpy(&header, message, sizeof header);
        transport->release(transport->context, message);
        send_message(transport, header.from, TURBIDITE_CONTROL, make(header.from, TURBIDITE_CONTROL, 0, 10), pending);
        left--;
    }
}

static void test_stall(void)
{
    turbidite_transport *transport;
    EXPECT(turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    long pending = 0;
    unsigned long long accepted = 0, all = 0;
    if (rank == 0)
        echo(transport, &pending);
    else
        accepted = flood(transport, &pending);
    MPI_Allreduce(&accepted, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    /* A rank may have 64 messages in flight. The limit to one rank is between 16, with few ranks, and 4, with many
     * ranks. */
    unsigned long long share = ranks == 1              ? 0
                               : 64 / (ranks - 1) > 16 ? 16
                               : 64 / (ranks - 1) < 4  ? 4
                                                       : 64 / (ranks - 1);
    unsigned long long expected = share * (unsigned long long)(ranks - 1);
    EXPECT(all == expected, "%llu messages accepted that nobody takes instead of %llu", all, expected);
    for (unsigned long long taken = 0; (rank == 0 && taken < all) || pending > 0;) {
        const void *message;
        size_t bytes;
        complete_sends(transport, &pending);
        if (rank == 0 && poll_message(transport, TURBIDITE_DATA, &message, &bytes)) {
            EXPECT(bytes == flood_sizes[0] || bytes == flood_sizes[1] || bytes == flood_sizes[2], "%zu bytes", bytes);
            transport->release(transport->context, message);
            taken++;
        }
    }
    EXPECT(turbidite_mpi_close(transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    if (rank == 0)
        printf("stall: %llu messages accepted while none was taken\n", all);
}

/* ---- A receiver that releases no messages ---- */

enum { HELD_MOST = 64, OFFERED = HELD_MOST + 20 };

/* Rank 0 may hold HELD_MOST data messages, and receives no more until it releases one. Rank 1 sends OFFERED
 * messages. */
static void test_hold(void)
{
    turbidite_transport *transport;
    EXPECT(turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    const void *held[OFFERED], *message;
    size_t bytes;
    long pending = 0;
    uint32_t left = rank == 1 ? OFFERED : 0;
    int count = 0, taken = rank == 0 && ranks > 1 ? 0 : OFFERED;
    while (left > 0 || pending > 0 || taken < OFFERED) {
        complete_sends(transport, &pending);
        if (left > 0) {
            struct outgoing *outgoing = make(0, TURBIDITE_DATA, left, 1000);
            if (send_message(transport, 0, TURBIDITE_DATA, outgoing, &pending))
                left--;
            else
                free(outgoing);
        }
        if (rank == 0 && taken < OFFERED && poll_message(transport, TURBIDITE_DATA, &message, &bytes)) {
            held[count++] = message;
            taken++;
        }
        for (int tries = 0; count == HELD_MOST && tries < 2000; tries++)
            EXPECT(!poll_message(transport, TURBIDITE_DATA, &message, &bytes), "more than %d are lent", count);
        if (count == HELD_MOST)
            transport->release(transport->context, held[--count]);
    }
    EXPECT(count == (rank == 0 && ranks > 1 ? HELD_MOST - 1 : 0), "%d messages are held", count);
    EXPECT(turbidite_mpi_close(transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
}

/* ---- Closing with messages in flight ---- */

static void test_close(void)
{
    struct outgoing *outgoing[64];
    const void *lent;
    size_t bytes;
    for (int round = 0; round < 3; round++) {
        turbidite_transport *transport;
        EXPECT(turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
        /* Messages left from the last round must not arrive. */
        for (int count = 0; count < 100; count++)
            for (int32_t channel = 0; channel < CHANNELS; channel++)
                EXPECT(!poll_message(transport, channel, &lent, &bytes), "a message of a transport that is closed");
        MPI_Barrier(MPI_COMM_WORLD);
        int count = 0;
        while (ranks > 1 && count < 24) {
            uint32_t to = (uint32_t)((rank + 1 + count / 3 % (ranks - 1)) % ranks);
            size_t size = count % 3 == 2 ? 1000000 : count % 2 == 0 ? 30000 : 60000;
            int32_t channel = count % 3 == 0 ? TURBIDITE_DATA : TURBIDITE_CONTROL;
            outgoing[count] = make(to, channel, 0, size);
            int32_t answer = transport->send(transport->context, to, channel, outgoing[count]->message, size, &count);
            EXPECT(answer >= 0, "send: %s", transport->describe(transport->context));
            count++;
        }
        /* Some ranks have a message that they never release. */
        while (ranks > 1 && rank % 2 == 0 && !poll_message(transport, rank % 4 / 2, &lent, &bytes))
            continue;
        EXPECT(turbidite_mpi_close(transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
        while (count > 0)
            finish(outgoing[--count]);
    }
    EXPECT(turbidite_mpi_close(NULL) == TURBIDITE_OK, "closing nothing");
}

/* ---- Part of the ranks, in another order ---- */

static void test_split(void)
{
    MPI_Comm half;
    int world_rank = rank, world_ranks = ranks;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &ranks);
    test_traffic(half, 200);
    rank = world_rank;
    ranks = world_ranks;
    MPI_Comm_free(&half);
}

/* ---- Large control messages ---- */

static void test_large(void)
{
    const char *text = getenv("LARGE_BYTES");
    size_t size = text != NULL ? (size_t)strtoull(text, NULL, 10) : 20u << 20;
    turbidite_transport *transport;
    EXPECT(turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    long pending = 0;
    if (rank > 0)
        send_message(transport, 0, TURBIDITE_CONTROL, make(0, TURBIDITE_CONTROL, 0, size), &pending);
    if (rank > 0)
        send_message(transport, 0, TURBIDITE_CONTROL, make(0, TURBIDITE_CONTROL, 1, 10), &pending);
    uint32_t *next = calloc((size_t)ranks, sizeof *next);
    for (int left = rank == 0 ? 2 * (ranks - 1) : 0; left > 0 || pending > 0;) {
        const void *message;
        size_t bytes;
        struct header header;
        complete_sends(transport, &pending);
        if (!poll_message(transport, TURBIDITE_CONTROL, &message, &bytes))
            continue;
        memcpy(&header, message, sizeof header);
        EXPECT(header.number == next[header.from]++, "number %u of rank %u", header.number, header.from);
        EXPECT(bytes == (header.number == 0 ? size : 10), "%zu bytes", bytes);
        struct outgoing *twin = malloc(sizeof *twin + bytes);
        EXPECT(twin != NULL, "no memory");
        fill(twin->message, bytes, header.from, 0, TURBIDITE_CONTROL, header.number);
        EXPECT(memcmp(twin->message, message, bytes) == 0, "a large message has changed");
        free(twin);
        transport->release(transport->context, message);
        left--;
    }
    free(next);
    EXPECT(turbidite_mpi_close(transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
}

/* ---- Nodes, wrong calls ---- */

static void test_nodes(void)
{
    turbidite_transport *transport;
    int status = turbidite_mpi_open(MPI_COMM_WORLD, &transport);
    char line[256] = "";
    if (status != TURBIDITE_OK) {
        EXPECT(transport == NULL && strlen(turbidite_mpi_last_error()) > 20, "no reason given");
        snprintf(line, sizeof line, "status %d", status);
    } else if (transport->nodes == NULL) {
        snprintf(line, sizeof line, "NULL");
    } else {
        for (uint32_t other = 0; other < transport->ranks; other++)
            snprintf(line + strlen(line), sizeof line - strlen(line), "%u ", transport->nodes[other]);
    }
    char first[sizeof line];
    memcpy(first, line, sizeof line);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    EXPECT(strcmp(first, line) == 0, "nodes are %s, on rank 0 %s", line, first);
    EXPECT(turbidite_mpi_close(transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    if (rank == 0)
        printf("nodes: %s\n", line);
}

/* One rank after the other abandons and closes its transport, each only after the previous rank has finished. No rank
 * may wait for another. */
static void test_abandon(void)
{
    turbidite_transport *transport;
    EXPECT(turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    void *context = transport->context;
    int token = 0;
    if (rank > 0)
        MPI_Recv(&token, 1, MPI_INT, rank - 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    transport->abandon(context);
    EXPECT(transport->poll(context, TURBIDITE_CONTROL, &(const void *){NULL}, &(size_t){0}) < 0, "polled");
    EXPECT(strstr(transport->describe(context), "lost their connection") != NULL, "%s", transport->describe(context));
    EXPECT(transport->completed(context) == NULL, "completed");
    EXPECT(turbidite_mpi_close(transport) == TURBIDITE_FAILED, "closed well");
    EXPECT(strstr(turbidite_mpi_last_error(), "MPI_Abort") != NULL, "%s", turbidite_mpi_last_error());
    if (rank < ranks - 1)
        MPI_Send(&token, 1, MPI_INT, rank + 1, 9, MPI_COMM_WORLD);
}

static void expect_refusal(int status, const turbidite_transport *transport, const char *word)
{
    EXPECT(status == TURBIDITE_USAGE && transport == NULL, "status %d", status);
    EXPECT(strstr(turbidite_mpi_last_error(), word) != NULL, "'%s' lacks '%s'", turbidite_mpi_last_error(), word);
}

static void test_refusals(void)
{
    turbidite_transport *transport = (turbidite_transport *)&rank;
    int status = turbidite_mpi_open(MPI_COMM_NULL, &transport);
    expect_refusal(status, transport, "intracommunicator");
    EXPECT(turbidite_mpi_open(MPI_COMM_WORLD, NULL) == TURBIDITE_USAGE, "nowhere to put it");
    EXPECT(turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    void *context = transport->context;
    EXPECT(transport->send(context, (uint32_t)ranks, TURBIDITE_DATA, "x", 1, &rank) < 0, "sent to nobody");
    EXPECT(strstr(transport->describe(context), "no such other rank") != NULL, "%s", transport->describe(context));
    EXPECT(transport->send(context, (uint32_t)rank, TURBIDITE_DATA, "x", 1, &rank) < 0, "sent to itself");
    EXPECT(transport->poll(context, TURBIDITE_ACROSS + 1, &(const void *){NULL}, &(size_t){0}) < 0, "no such channel");
    if (ranks > 1) {
        uint32_t to = rank == 0;
        EXPECT(transport->send(context, to, TURBIDITE_CONTROL, "x", (size_t)1 << 31, &rank) < 0, "2 GiB");
        EXPECT(strstr(transport->describe(context), "2 GiB") != NULL, "%s", transport->describe(context));
        EXPECT(transport->send(context, to, 7, "x", 1, &rank) < 0, "no such channel");
        EXPECT(transport->send(context, to, TURBIDITE_DATA, "x", 1, NULL) < 0, "no token");
    }
    EXPECT(turbidite_mpi_close(transport) == TURBIDITE_OK, "%s", turbidite_mpi_last_error());
    /* The program's own error handler is unchanged. */
    MPI_Errhandler handler;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    EXPECT(handler == MPI_ERRORS_ARE_FATAL, "another error handler");
    MPI_Errhandler_free(&handler);
}

int main(int count, char **arguments)
{
    turbidite_transport *transport = (turbidite_transport *)&rank;
    int before = turbidite_mpi_open(MPI_COMM_WORLD, &transport);
    int provided;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    expect_refusal(before, transport, "not initialised");
    for (int index = 1; index < count; index++) {
        const char *mode = arguments[index];
        if (strcmp(mode, "traffic") == 0)
            test_traffic(MPI_COMM_WORLD, 1500);
        else if (strcmp(mode, "stall") == 0)
            test_stall();
        else if (strcmp(mode, "hold") == 0)
            test_hold();
        else if (strcmp(mode, "close") == 0)
            test_close();
        else if (strcmp(mode, "split") == 0)
            test_split();
        else if (strcmp(mode, "large") == 0)
            test_large();
        else if (strcmp(mode, "nodes") == 0)
            test_nodes();
        else if (strcmp(mode, "abandon") == 0)
            test_abandon();
        else if (strcmp(mode, "refusals") == 0)
            test_refusals();
        else
            fail("no such test: %s", mode);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    transport = (turbidite_transport *)&rank;
    int after = turbidite_mpi_open(MPI_COMM_WORLD, &transport);
    if (after != TURBIDITE_USAGE || transport != NULL || strstr(turbidite_mpi_last_error(), "finalised") == NULL) {
        fprintf(stderr, "rank %d: opened after MPI_Finalize: %d\n", rank, after);
        return 1;
    }
    if (rank == 0)
        printf("passed\n");
    return 0;
}
