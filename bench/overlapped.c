/*
 * What indexing costs a program that computes on all cores while its records are sorted and written. A step computes in
 * pieces, and appends records after each but the first, which overlaps the end of the last epoch.
 *
 *     overlapped FOLDER EPOCHS LOOPS ROWS [INDEX...]
 *
 * Each rank computes LOOPS loops a step, and appends ROWS records of 64 bytes. FOLDER is a dataset to create, or - to
 * compute only. Each INDEX is made of the records. Rank 0 prints one line of JSON; times are means over the ranks, and
 * end_start_s is that of the calls of turbidite_end_epoch_start.
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "turbidite_mpi.h"

enum { PIECES = 16 };

struct record {
    float energy;
    uint32_t id;
    char payload[56];
};

/* Seconds in calls of the library: by the clock, and of the calling thread's processor. */
static double called_s, called_cpu_s;

/* Indexes that are made, each with a transport. The first transport is that of the records. */
enum { MAX_INDEXES = 8 };

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void check(int ok, const char *call) {
    if (ok) return;
    fprintf(stderr, "overlapped: %s: %s %s\n", call, turbidite_last_error(), turbidite_mpi_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define CALL(call)                                                                               \
    do {                                                                                         \
        double wall_s = seconds(CLOCK_MONOTONIC), cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID);      \
        check((call) == TURBIDITE_OK, #call);                                                    \
        called_s += seconds(CLOCK_MONOTONIC) - wall_s;                                           \
        called_cpu_s += seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_s;                                \
    } while (0)

/* Arithmetic in registers, which other programs cannot slow down by their use of memory. */
static double compute(long loops) {
    double value = 0.5;
    for (long loop = 0; loop < loops; loop++)
        value = 3.9 * value * (1 - value);
    return value;
}

int main(int argc, char **argv) {
    if (argc < 5 || argc > 5 + MAX_INDEXES) {
        fprintf(stderr, "usage: overlapped FOLDER|- EPOCHS LOOPS ROWS [INDEX...]\n");
        return 2;
    }
    const size_t count = (size_t)argc - 5;
    const int epochs = atoi(argv[2]), indexes = strcmp(argv[1], "-") != 0;
    const long loops = atol(argv[3]), rows = atol(argv[4]) / (PIECES - 1);
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct record *records = calloc((size_t)rows * PIECES, sizeof *records);
    uint64_t state = (uint64_t)rank + 1;
    for (long row = 0; row < rows * PIECES; row++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        records[row] = (struct record){(float)-log(((double)(state >> 11) + 0.5) / 9007199254740992.0), (uint32_t)row, {0}};
    }
    turbidite_transport *transports[1 + MAX_INDEXES] = {NULL};
    turbidite_dataset *dataset = NULL;
    double end_start_s = 0;
    if (indexes) {
        for (size_t number = 0; number <= count; number++)
            check(turbidite_mpi_open(MPI_COMM_WORLD, &transports[number]) == TURBIDITE_OK, "turbidite_mpi_open");
        const turbidite_column schema[] = {{"energy", TURBIDITE_F32, 0, NULL}, {"id", TURBIDITE_U32, 0, NULL}, {"payload", TURBIDITE_BYTES, 56, NULL}};
        check(turbidite_open_indexed(argv[1], schema, 3, "energy", (const char *const *)argv + 5, count, NULL,
                                     (const turbidite_transport *const *)transports, &dataset) == TURBIDITE_OK,
              "turbidite_open_indexed");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double unused = 0, begun = seconds(CLOCK_MONOTONIC), begun_cpu_s = cpu_seconds();
    for (int epoch = 0; epoch < epochs; epoch++) {
        unused += compute(loops / PIECES);
        if (indexes) {
            if (epoch > 0) CALL(turbidite_end_epoch_wait(dataset, NULL));
            CALL(turbidite_begin_epoch(dataset, (uint64_t)epoch));
        }
        for (int piece = 1; piece < PIECES; piece++) {
            unused += compute(loops / PIECES);
            MPI_Barrier(MPI_COMM_WORLD);
            if (indexes) CALL(turbidite_append_rows(dataset, records + (piece - 1) * rows, sizeof *records, (size_t)rows));
        }
        if (indexes) {
            double before_s = called_s;
            CALL(turbidite_end_epoch_start(dataset));
            end_start_s += called_s - before_s;
        }
    }
    unused += compute(loops / PIECES);
    if (indexes) CALL(turbidite_end_epoch_wait(dataset, NULL));
    double figures[] = {seconds(CLOCK_MONOTONIC) - begun, cpu_seconds() - begun_cpu_s, called_s - called_cpu_s, called_s, end_start_s}, sums[5];
    MPI_Reduce(figures, sums, 5, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"wall_s\": %.4f, \"cpu_s\": %.4f, \"blocked_s\": %.4f, \"called_s\": %.4f, \"end_start_s\": %.4f, \"unused\": %g}\n", sums[0] / ranks,
               sums[1] / ranks, sums[2] / ranks, sums[3] / ranks, sums[4] / ranks, unused);
    if (indexes) {
        check(turbidite_close(dataset) == TURBIDITE_OK, "turbidite_close");
        for (size_t number = 0; number <= count; number++)
            check(turbidite_mpi_close(transports[number]) == TURBIDITE_OK, "turbidite_mpi_close");
    }
    free(records);
    MPI_Finalize();
    return 0;
}
