/*
 * The few things the dump programs need of MPI; with -DSERIAL a program of one rank without MPI.
 *
 * MPI's errors end the program (MPI_ERRORS_ARE_FATAL, the default), so its return codes are not looked at.
 */
#ifndef RANKS_H
#define RANKS_H

#ifdef SERIAL

static inline void ranks_begin(int *count, char ***arguments, int *rank, int *ranks)
{
    (void)count;
    (void)arguments;
    *rank = 0;
    *ranks = 1;
}

static inline void ranks_end(void) {}
static inline void ranks_barrier(void) {}
static inline void ranks_reduce_often(int times) { (void)times; }
static inline void ranks_await_turn(int rank) { (void)rank; }
static inline void ranks_pass_turn(int rank, int ranks) { (void)rank, (void)ranks; }
static inline int ranks_any(int value) { return value; }

#else

#include <mpi.h>

static inline void ranks_begin(int *count, char ***arguments, int *rank, int *ranks)
{
    MPI_Init(count, arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
}

static inline void ranks_end(void)
{
    MPI_Finalize();
}

static inline void ranks_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Small reductions, as solvers do between two dumps. */
static inline void ranks_reduce_often(int times)
{
    double residual = 1, sum;
    for (int time = 0; time < times; time++)
        MPI_Allreduce(&residual, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* The token that lets a rank dump travels from rank to rank, point to point: nothing here is collective. */
#define TAG_TURN 7

static inline void ranks_await_turn(int rank)
{
    int token;
    if (rank > 0)
        MPI_Recv(&token, 1, MPI_INT, rank - 1, TAG_TURN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static inline void ranks_pass_turn(int rank, int ranks)
{
    if (rank + 1 < ranks)
        MPI_Send(&rank, 1, MPI_INT, rank + 1, TAG_TURN, MPI_COMM_WORLD);
}

/* Whether the value is not 0 on any rank. Collective. */
static inline int ranks_any(int value)
{
    int mine = value != 0, any;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return any;
}

#endif

#endif
