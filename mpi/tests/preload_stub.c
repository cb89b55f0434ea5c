/*
 * Replaces libturbidite_preload.so. It counts the calls that libturbidite_preload_mpi.so reports. In a collective it
 * agrees with the other ranks and sends messages, as the real library does. Errors end the job.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "turbidite_preload.h"

#define EXPORTED __attribute__((visibility("default")))
#define EXPECT(condition)                                                     \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "preload_stub.c:%d: %s\n", __LINE__, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                     \
        }                                                                     \
    } while (0)

static const turbidite_transport *transport;
static const turbidite_agreement *agreement;
static int started, collectives;

EXPORTED void turbidite_preload_mpi_started(const turbidite_transport *of_mpi,
                                            const turbidite_agreement *agreement_of_mpi)
{
    started++;
    transport = of_mpi;
    agreement = agreement_of_mpi;
    EXPECT(agreement->struct_size == sizeof *agreement && transport->struct_size == sizeof *transport);
}

/* Sends every rank's number to the next rank of a ring. */
static void pass_round(void)
{
    int32_t number = (int32_t)transport->rank, answer;
    uint32_t next = (transport->rank + 1) % transport->ranks;
    const void *message;
    size_t bytes;
    if (transport->ranks == 1)
        return;
    answer = transport->send(transport->context, next, TURBIDITE_CONTROL, &number, sizeof number, &number);
    EXPECT(answer == TURBIDITE_SENT || answer == TURBIDITE_PENDING);
    while (transport->poll(transport->context, TURBIDITE_CONTROL, &message, &bytes) == 0)
        continue;
    int32_t received;
    EXPECT(bytes == sizeof received);
    memcpy(&received, message, sizeof received);
    EXPECT((uint32_t)(received + 1) % transport->ranks == transport->rank);
    transport->release(transport->context, message);
    while (answer == TURBIDITE_PENDING && transport->completed(transport->context) == NULL)
        continue;
}

EXPORTED void turbidite_preload_at_collective(void)
{
    collectives++;
    int64_t ranks = transport->ranks, rank = transport->rank;
    int64_t values[3] = {rank, -rank, INT64_C(1) << 40};
    EXPECT(agreement->minimum(agreement->context, values, 3) == 0);
    EXPECT(values[0] == 0 && values[1] == 1 - ranks && values[2] == INT64_C(1) << 40);
    int64_t sums[2] = {rank + 1, INT64_C(1) << 40};
    EXPECT(agreement->sum(agreement->context, sums, 2) == 0);
    EXPECT(sums[0] == ranks * (ranks + 1) / 2 && sums[1] == ranks << 40);
    pass_round();
    /* Our own call must not be reported. */
    MPI_Barrier(MPI_COMM_WORLD);
}

EXPORTED void turbidite_preload_before_finalize(void)
{
    int64_t values[2] = {collectives, -collectives};
    EXPECT(agreement->minimum(agreement->context, values, 2) == 0);
    EXPECT(values[0] == -values[1]);
    if (transport->rank == 0)
        printf("reported: started %d collectives %d\n", started, collectives);
    fflush(stdout);
}
