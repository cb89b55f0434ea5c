/*
 * A program without calls to Turbidite, which is run with the preload libraries. It prints the number of its collective
 * calls that must be reported. Usage: preload_test [threads]
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#define EXPECT(condition)                                                     \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "preload_test.c:%d: %s\n", __LINE__, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                     \
        }                                                                     \
    } while (0)

enum { RANKS_MOST = 64 };

static int rank, ranks;

/* Calls each collective once and checks its result. Returns the number of calls, which is 17. */
static int call_all(MPI_Comm communicator)
{
    int one[RANKS_MOST], all[RANKS_MOST], counts[RANKS_MOST], places[RANKS_MOST];
    MPI_Datatype types[RANKS_MOST];
    int value = rank == 0 ? 41 : 0, sum = 0, own = rank;
    for (int other = 0; other < ranks; other++) {
        one[other] = 100 * rank + other;
        counts[other] = 1;
        places[other] = other;
    }
    EXPECT(MPI_Barrier(communicator) == MPI_SUCCESS);
    EXPECT(MPI_Bcast(&value, 1, MPI_INT, 0, communicator) == MPI_SUCCESS && value == 41);
    EXPECT(MPI_Reduce(&own, &sum, 1, MPI_INT, MPI_SUM, 0, communicator) == MPI_SUCCESS);
    EXPECT(rank != 0 || sum == ranks * (ranks - 1) / 2);
    EXPECT(MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, communicator) == MPI_SUCCESS &&
           sum == ranks * (ranks - 1) / 2);
    EXPECT(MPI_Scan(&own, &sum, 1, MPI_INT, MPI_SUM, communicator) == MPI_SUCCESS && sum == rank * (rank + 1) / 2);
    sum = 0;
    EXPECT(MPI_Exscan(&own, &sum, 1, MPI_INT, MPI_SUM, communicator) == MPI_SUCCESS && sum == rank * (rank - 1) / 2);
    EXPECT(MPI_Reduce_scatter(one, &sum, counts, MPI_INT, MPI_SUM, communicator) == MPI_SUCCESS);
    EXPECT(sum == 100 * ranks * (ranks - 1) / 2 + ranks * rank);
    sum = 0;
    EXPECT(MPI_Reduce_scatter_block(one, &sum, 1, MPI_INT, MPI_SUM, communicator) == MPI_SUCCESS);
    EXPECT(sum == 100 * ranks * (ranks - 1) / 2 + ranks * rank);
    EXPECT(MPI_Gather(&own, 1, MPI_INT, all, 1, MPI_INT, 0, communicator) == MPI_SUCCESS);
    EXPECT(rank != 0 || all[ranks - 1] == ranks - 1);
    EXPECT(MPI_Gatherv(&own, 1, MPI_INT, all, counts, places, MPI_INT, 0, communicator) == MPI_SUCCESS);
    EXPECT(rank != 0 || all[ranks - 1] == ranks - 1);
    EXPECT(MPI_Allgather(&own, 1, MPI_INT, all, 1, MPI_INT, communicator) == MPI_SUCCESS &&
           all[ranks - 1] == ranks - 1);
    memset(all, 0xff, sizeof all);
    EXPECT(MPI_Allgatherv(&own, 1, MPI_INT, all, counts, places, MPI_INT, communicator) == MPI_SUCCESS);
    EXPECT(all[ranks - 1] == ranks - 1);
    EXPECT(MPI_Scatter(one, 1, MPI_INT, &value, 1, MPI_INT, 0, communicator) == MPI_SUCCESS && value == rank);
    EXPECT(MPI_Scatterv(one, counts, places, MPI_INT, &value, 1, MPI_INT, 0, communicator) == MPI_SUCCESS &&
           value == rank);
    EXPECT(MPI_Alltoall(one, 1, MPI_INT, all, 1, MPI_INT, communicator) == MPI_SUCCESS);
    EXPECT(all[ranks - 1] == 100 * (ranks - 1) + rank);
    memset(all, 0xff, sizeof all);
    EXPECT(MPI_Alltoallv(one, counts, places, MPI_INT, all, counts, places, MPI_INT, communicator) == MPI_SUCCESS);
    EXPECT(all[ranks - 1] == 100 * (ranks - 1) + rank);
    for (int other = 0; other < ranks; other++) {
        types[other] = MPI_INT;
        places[other] *= (int)sizeof(int);
    }
    memset(all, 0xff, sizeof all);
    EXPECT(MPI_Alltoallw(one, counts, places, types, all, counts, places, types, communicator) == MPI_SUCCESS);
    EXPECT(all[ranks - 1] == 100 * (ranks - 1) + rank);
    return 17;
}

/* Makes calls that must not be reported, since ranks must not be made to wait in them. The first two would otherwise
 * hang. */
static void call_others(void)
{
    MPI_Request request;
    MPI_Comm ring;
    int one = 1, sum = 0, periodic = 1, around[2] = {-1, -1};
    if (rank > 0)
        MPI_Ssend(&one, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int other = 1; rank == 0 && other < ranks; other++)
        MPI_Recv(&one, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (rank == ranks - 1 && ranks > 1)
        MPI_Ssend(&one, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    if (rank == 0 && ranks > 1)
        MPI_Recv(&one, 1, MPI_INT, ranks - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(sum == ranks);
    /* This communicator also has all ranks in the same order. */
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
    EXPECT(MPI_Neighbor_allgather(&rank, 1, MPI_INT, around, 1, MPI_INT, ring) == MPI_SUCCESS);
    EXPECT(around[0] == (rank + ranks - 1) % ranks && around[1] == (rank + 1) % ranks);
    MPI_Comm_free(&ring);
}

static int run_c(void)
{
    MPI_Comm same, reversed, part;
    int called = call_all(MPI_COMM_WORLD);
    call_others();
    /* This communicator has all ranks in the same order. The collectives are called twice, since the first call caches
     * the comparison. */
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    called += call_all(same) + call_all(same);
    MPI_Comm_free(&same);
    /* These communicators do not have all ranks in order. */
    int order = rank;
    MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &reversed);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
    called += ranks == 1 ? 4 : 0;
    for (int count = 0; count < 2; count++) {
        MPI_Barrier(reversed);
        MPI_Bcast(&order, 1, MPI_INT, 0, part);
        MPI_Allreduce(MPI_IN_PLACE, &order, 1, MPI_INT, MPI_MAX, MPI_COMM_SELF);
    }
    MPI_Comm_free(&reversed);
    MPI_Comm_free(&part);
    /* Messages between two ranks are not reported either. */
    if (ranks > 1)
        MPI_Sendrecv_replace(&order, 1, MPI_INT, (rank + 1) % ranks, 0, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    return called;
}

static void *barriers(void *communicator)
{
    for (int count = 0; count < 10; count++)
        MPI_Barrier(*(MPI_Comm *)communicator);
    return NULL;
}

/* Calls collectives on another thread. These are not reported, on any communicator. */
static int run_threads(void)
{
    MPI_Comm same;
    pthread_t thread;
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    EXPECT(pthread_create(&thread, NULL, barriers, &same) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    MPI_Comm_free(&same);
    MPI_Barrier(MPI_COMM_WORLD);
    return 1;
}

int main(int count, char **arguments)
{
    bool threads = count > 1 && strcmp(arguments[1], "threads") == 0;
    int provided = MPI_THREAD_SINGLE;
    if (threads)
        MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
    else
        MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    EXPECT(ranks <= RANKS_MOST && (!threads || provided == MPI_THREAD_MULTIPLE));
    int called = threads ? run_threads() : run_c();
    if (rank == 0)
        printf("called: %d\n", called);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
