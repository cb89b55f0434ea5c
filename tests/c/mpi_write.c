/*
 * The C interface on several ranks. test_mpi_write.py says which part to run and compares the dataset with what is kept
 * here: each rank writes the records it appends to E.<epoch>/records.<rank> as well, packed as the schema has them.
 *
 *     mpi_write PART DATASET FOLDER
 */
#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "turbidite_mpi.h"

#define CHECK(condition)                                                                                        \
    do {                                                                                                        \
        if (!(condition)) {                                                                                     \
            fprintf(stderr, "%s:%d: rank %d: %s is false; last error: %s\n", __FILE__, __LINE__, rank, #condition, \
                    turbidite_last_error());                                                                    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                       \
        }                                                                                                       \
    } while (0)

enum { ROWS = 12000, COLUMNS = 4, RECORD_BYTES = 24, WORDS = 1024, FULL_DISK_BYTES = 20000, AMPLE_S = 300 };

/* As a program might keep it: not as we store it, and with members of its own. */
typedef struct particle {
    uint64_t id;
    double tag;
    double momentum;
    float energy;
    int32_t cell;
} particle;

static const turbidite_column SCHEMA[COLUMNS] = {
    {"energy", TURBIDITE_F32, 0, "mc^2"},
    {"id", TURBIDITE_U64, 0, NULL},
    {"momentum", TURBIDITE_F64, 0, "mc"},
    {"cell", TURBIDITE_I32, 0, NULL},
};

static int rank, ranks;
static const char *dataset_path, *records_path;
static turbidite_transport *transport;
static particle particles[2 * ROWS];

static uint64_t scramble(uint64_t seed) {
    seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
    seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
    return seed ^ (seed >> 31);
}

/* Records of this rank in an epoch, from a seed; ranks have different numbers of them. The energies drift from epoch
 * to epoch, some are equal on all ranks, and some are no numbers or infinite. */
static size_t fill(uint64_t epoch, uint64_t seed) {
    size_t count = ROWS + 500 * (size_t)(rank % 8);
    for (size_t i = 0; i < count; i++) {
        uint64_t id = (uint64_t)rank << 32 | i;
        uint64_t random = scramble(scramble(epoch * 1000 + seed) ^ (id + 1) * 0x9e3779b97f4a7c15u);
        double uniform = ((double)(random >> 11) + 0.5) / 9007199254740992.0;
        float energy = (float)(-log(uniform) * (double)(epoch + 1));
        if (i % 50 == 7) energy = 0.5f;
        if (i % 5000 == 11) energy = i % 2 ? NAN : INFINITY;
        particles[i] = (particle){.id = id, .tag = -1, .momentum = uniform - 0.5, .energy = energy,
                                  .cell = (int32_t)(random % 4096) - 2048};
    }
    return count;
}

static void pack(const particle *from, unsigned char *to) {
    memcpy(to, &from->energy, 4);
    memcpy(to + 4, &from->id, 8);
    memcpy(to + 12, &from->momentum, 8);
    memcpy(to + 20, &from->cell, 4);
}

/* Keeps the records for the test's own comparison. */
static void keep(uint64_t epoch, size_t count) {
    char path[WORDS];
    snprintf(path, sizeof path, "%s/E.%llu", records_path, (unsigned long long)epoch);
    CHECK(mkdir(path, 0777) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/E.%llu/records.%d", records_path, (unsigned long long)epoch, rank);
    FILE *file = fopen(path, "w");
    CHECK(file);
    for (size_t i = 0; i < count; i++) {
        unsigned char packed[RECORD_BYTES];
        pack(&particles[i], packed);
        CHECK(fwrite(packed, sizeof packed, 1, file) == 1);
    }
    CHECK(fclose(file) == 0);
}

/* Whether all ranks have this status; and, when it is an error, these words. */
static int same_everywhere(turbidite_status status) {
    int32_t extremes[2] = {status, -status};
    char words[WORDS] = "", first[WORDS];
    int failed = status != TURBIDITE_OK && status != TURBIDITE_SKIPPED;
    if (failed) snprintf(words, sizeof words, "%s", turbidite_last_error());
    memcpy(first, words, sizeof words);
    MPI_Allreduce(MPI_IN_PLACE, extremes, 2, MPI_INT32_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Bcast(first, WORDS, MPI_CHAR, 0, MPI_COMM_WORLD);
    int32_t same = extremes[0] == -extremes[1] && strcmp(first, words) == 0;
    if (!same) fprintf(stderr, "rank %d: status %d: %s\n", rank, (int)status, words);
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT32_T, MPI_MIN, MPI_COMM_WORLD);
    return same;
}

/* A collective call has failed: alike on all ranks, and with these words in it. */
static void check_failure(const char *what, turbidite_status status, turbidite_status expected, const char *words) {
    CHECK(same_everywhere(status));
    CHECK(status == expected);
    CHECK(strstr(turbidite_last_error(), words));
    if (rank == 0) printf("%s: %s\n", what, turbidite_last_error());
}

static void check_success(turbidite_status status, turbidite_status expected) {
    CHECK(same_everywhere(status));
    CHECK(status == expected);
}

static turbidite_dataset *open_with_receivers(int32_t if_exists, uint32_t receivers) {
    turbidite_options options;
    turbidite_options_init(&options);
    options.if_exists = if_exists;
    options.receivers = receivers;
    options.stall_s = AMPLE_S; /* a test that hangs is to say where */
    turbidite_dataset *dataset = NULL;
    check_success(turbidite_open(dataset_path, SCHEMA, COLUMNS, "energy", &options, transport, &dataset), TURBIDITE_OK);
    return dataset;
}

static turbidite_dataset *open_dataset(int32_t if_exists) {
    return open_with_receivers(if_exists, 0);
}

/* Appends by views into the program's structs, in pieces of every size. */
static void append_views(turbidite_dataset *dataset, size_t count) {
    for (size_t begin = 0, piece = 1; begin < count; begin += piece, piece = piece * 3 % 4099) {
        if (piece > count - begin) piece = count - begin;
        const particle *first = &particles[begin];
        turbidite_view views[COLUMNS] = {
            turbidite_values(&first->energy, sizeof *first), turbidite_values(&first->id, sizeof *first),
            turbidite_values(&first->momentum, sizeof *first), turbidite_values(&first->cell, sizeof *first)};
        CHECK(turbidite_append(dataset, views, COLUMNS, piece) == TURBIDITE_OK);
    }
}

static void append_packed(turbidite_dataset *dataset, size_t count) {
    static unsigned char rows[700][RECORD_BYTES];
    for (size_t begin = 0; begin < count;) {
        size_t piece = count - begin < 700 ? count - begin : 700;
        for (size_t i = 0; i < piece; i++) pack(&particles[begin + i], rows[i]);
        CHECK(turbidite_append_rows(dataset, rows, sizeof rows[0], piece) == TURBIDITE_OK);
        memset(rows, 0xff, sizeof rows); /* the memory is the caller's again */
        begin += piece;
        if (rank == ranks / 2 && begin % 2100 == 0) CHECK(turbidite_renegotiate(dataset) == TURBIDITE_OK);
    }
}

static uint64_t total(size_t count) {
    uint64_t sum = count;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* The metrics of an epoch: of all ranks' records, and the same on every rank. */
static void check_metrics(const turbidite_epoch_metrics *metrics, size_t count) {
    CHECK(metrics->rows == total(count) && metrics->ranks == (uint32_t)ranks);
    CHECK(metrics->strays + metrics->spills <= metrics->rows);
    turbidite_epoch_metrics first = *metrics;
    MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    first.wall_s = metrics->wall_s; /* each rank's own clock */
    CHECK(metrics->recipients < (uint32_t)ranks && metrics->senders < (uint32_t)ranks);
    CHECK(metrics->open_batch_bytes <= metrics->batch_bytes);
    first.recipients = metrics->recipients; /* and its own neighbours */
    first.senders = metrics->senders;
    first.forwarded = metrics->forwarded;
    first.open_batch_bytes = metrics->open_batch_bytes;
    first.batch_bytes = metrics->batch_bytes;
    CHECK(memcmp(&first, metrics, sizeof first) == 0);
}

static void end_epoch(turbidite_dataset *dataset, size_t count) {
    turbidite_epoch_metrics metrics = {.struct_size = sizeof metrics};
    check_success(turbidite_end_epoch(dataset, &metrics), TURBIDITE_OK);
    check_metrics(&metrics, count);
}

static void write_epoch(turbidite_dataset *dataset, uint64_t epoch, uint64_t seed) {
    check_success(turbidite_begin_epoch(dataset, epoch), TURBIDITE_OK);
    size_t count = fill(epoch, seed);
    append_views(dataset, count);
    end_epoch(dataset, count);
    keep(epoch, count);
}

/* Ending in two parts: the program computes and communicates in between, and uses the memory of its records. */
static void write_in_background(turbidite_dataset *dataset, uint64_t epoch) {
    check_success(turbidite_begin_epoch(dataset, epoch), TURBIDITE_OK);
    size_t count = fill(epoch, 0);
    keep(epoch, count);
    append_packed(dataset, count);
    check_success(turbidite_end_epoch_start(dataset), TURBIDITE_OK);
    memset(particles, 0xff, sizeof particles);
    CHECK(turbidite_begin_epoch(dataset, epoch + 1) == TURBIDITE_USAGE);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(turbidite_progress(dataset) == TURBIDITE_OK);
    turbidite_epoch_metrics metrics = {.struct_size = sizeof metrics};
    check_success(turbidite_end_epoch_wait(dataset, &metrics), TURBIDITE_OK);
    check_metrics(&metrics, count);
}

/* One rank after the other appends, while the rest wait for the token in MPI and do not serve Turbidite. */
static void write_with_token(turbidite_dataset *dataset, uint64_t epoch) {
    check_success(turbidite_begin_epoch(dataset, epoch), TURBIDITE_OK);
    size_t count = fill(epoch, 0);
    int token = 0;
    if (rank > 0) MPI_Recv(&token, 1, MPI_INT, rank - 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    append_views(dataset, count);
    if (rank < ranks - 1) MPI_Send(&token, 1, MPI_INT, rank + 1, 5, MPI_COMM_WORLD);
    end_epoch(dataset, count);
    keep(epoch, count);
}

static void part_epochs(void) {
    turbidite_dataset *dataset = open_dataset(TURBIDITE_IF_EXISTS_ERROR);
    write_epoch(dataset, 10, 0);
    check_success(turbidite_begin_epoch(dataset, 20), TURBIDITE_OK);
    size_t count = fill(20, 0);
    append_packed(dataset, count);
    end_epoch(dataset, count);
    keep(20, count);
    write_in_background(dataset, 30);
    /* All records on one rank. */
    check_success(turbidite_begin_epoch(dataset, 40), TURBIDITE_OK);
    count = rank == ranks - 1 ? fill(40, 0) : 0;
    append_views(dataset, count);
    end_epoch(dataset, count);
    keep(40, count);
    check_failure("exists", turbidite_begin_epoch(dataset, 10), TURBIDITE_FAILED, "epoch 10 already exists");
    write_epoch(dataset, 50, 0);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

static void part_token(void) {
    turbidite_dataset *dataset = open_dataset(TURBIDITE_IF_EXISTS_ERROR);
    write_with_token(dataset, 10);
    write_epoch(dataset, 20, 0);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

/* After part_epochs: a job that begins again. */
static void part_restart(void) {
    turbidite_dataset *dataset = open_dataset(TURBIDITE_IF_EXISTS_SKIP);
    check_success(turbidite_begin_epoch(dataset, 30), TURBIDITE_SKIPPED);
    CHECK(turbidite_append_rows(dataset, particles, RECORD_BYTES, 1) == TURBIDITE_USAGE);
    write_epoch(dataset, 60, 0);
    check_success(turbidite_truncate_after(dataset, 40), TURBIDITE_OK);
    check_success(turbidite_begin_epoch(dataset, 10), TURBIDITE_SKIPPED);
    write_epoch(dataset, 50, 1);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
    MPI_Barrier(MPI_COMM_WORLD);
    dataset = open_dataset(TURBIDITE_IF_EXISTS_REPLACE);
    write_epoch(dataset, 20, 2);
    write_epoch(dataset, 70, 0);
    check_success(turbidite_truncate_after(dataset, 50), TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

/* Every write of this process beyond so many bytes of a file fails, as on a full disk. */
static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void fill_the_disk_of(turbidite_dataset *dataset, int full, uint64_t epoch) {
    check_success(turbidite_begin_epoch(dataset, epoch), TURBIDITE_OK);
    size_t count = fill(epoch, 0);
    if (rank == full) limit_files(FULL_DISK_BYTES);
    append_views(dataset, count);
    turbidite_status status = turbidite_end_epoch(dataset, NULL);
    if (rank == full) limit_files(RLIM_INFINITY);
    char words[64];
    snprintf(words, sizeof words, "rank %d", full);
    check_failure("full disk", status, TURBIDITE_FAILED, words);
    CHECK(strstr(turbidite_last_error(), "File too large"));
}

/* Full disks, and a rank whose epoch is another than rank 0's, which the end tells all. */
static void part_failures(void) {
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    /* A rank whose disk is full has to store something. */
    turbidite_dataset *dataset = open_with_receivers(TURBIDITE_IF_EXISTS_ERROR, (uint32_t)ranks);
    write_epoch(dataset, 10, 0);
    fill_the_disk_of(dataset, ranks - 1, 20);
    write_epoch(dataset, 20, 0);
    fill_the_disk_of(dataset, 0, 30);
    if (ranks > 1) {
        size_t count = fill(35, 0);
        CHECK(turbidite_begin_epoch(dataset, rank == ranks - 1 ? 36 : 35) == TURBIDITE_OK);
        append_views(dataset, count);
        char words[64];
        snprintf(words, sizeof words, "rank %d began epoch 36, but rank 0 began 35", ranks - 1);
        check_failure("other epoch", turbidite_end_epoch(dataset, NULL), TURBIDITE_FAILED, words);
    }
    write_epoch(dataset, 40, 0);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

/* One rank opens with other columns, or with columns that cannot be; all are told, and the next open works. */
static void part_schemas(void) {
    turbidite_column other[COLUMNS];
    turbidite_dataset *dataset = NULL;
    turbidite_options options;
    turbidite_options_init(&options);
    options.stall_s = AMPLE_S;
    if (ranks > 1) {
        memcpy(other, SCHEMA, sizeof other);
        if (rank == ranks - 1) other[2].type = TURBIDITE_F32;
        turbidite_status status = turbidite_open(dataset_path, other, COLUMNS, "energy", &options, transport, &dataset);
        check_failure("other schema", status, TURBIDITE_USAGE, "momentum");
        CHECK(dataset == NULL);
    }
    for (int odd = 0; odd < ranks; odd += ranks > 1 ? ranks - 1 : 1) {
        memcpy(other, SCHEMA, sizeof other);
        if (rank == odd) other[2].type = 77;
        turbidite_status status = turbidite_open(dataset_path, other, COLUMNS, "energy", &options, transport, &dataset);
        check_failure("impossible schema", status, TURBIDITE_USAGE, "77 of column 'momentum' is not one of");
        CHECK(dataset == NULL);
    }
    dataset = open_dataset(TURBIDITE_IF_EXISTS_ERROR);
    write_epoch(dataset, 10, 0);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

/* Two columns are indexed while the records are written, and two by bitmaps, for which no transport is needed. Ranks that
 * name other columns are refused everywhere. */
static void part_indexes(void) {
    const char *indexes[3] = {"hash:id,with=energy", "bitmap:energy,cell", "cell"};
    turbidite_transport *further[2];
    for (int i = 0; i < 2; i++) CHECK(turbidite_mpi_open(MPI_COMM_WORLD, &further[i]) == TURBIDITE_OK);
    const turbidite_transport *transports[4] = {transport, further[0], NULL, further[1]};
    turbidite_options options;
    turbidite_options_init(&options);
    options.if_exists = TURBIDITE_IF_EXISTS_REPLACE;
    options.stall_s = AMPLE_S;
    turbidite_dataset *dataset = NULL;
    const char *wrong[3] = {indexes[0], indexes[1], rank == ranks - 1 ? "momentum" : "cell"};
    turbidite_status status = turbidite_open_indexed(dataset_path, SCHEMA, COLUMNS, "energy", wrong, 3, &options,
                                                     transports, &dataset);
    if (ranks > 1) {
        check_failure("other indexes", status, TURBIDITE_USAGE, "[hash:id,with=energy, bitmap:energy,cell, momentum] here");
    } else {
        CHECK(status == TURBIDITE_OK && turbidite_close(dataset) == TURBIDITE_OK);
        indexes[2] = "momentum";
    }
    /* A transport that one rank lacks is an error on all of them. */
    const turbidite_transport *lacking[4] = {transport, further[0], NULL, rank == ranks - 1 ? NULL : further[1]};
    status = turbidite_open_indexed(dataset_path, SCHEMA, COLUMNS, "energy", indexes, 3, &options, lacking, &dataset);
    check_failure("missing transport", status, TURBIDITE_USAGE, "transports: has a NULL");
    wrong[2] = rank == 0 ? "nothing" : "cell";
    status = turbidite_open_indexed(dataset_path, SCHEMA, COLUMNS, "energy", wrong, 3, &options, transports, &dataset);
    check_failure("no such column", status, TURBIDITE_USAGE, "nothing");
    status = turbidite_open_indexed(dataset_path, SCHEMA, COLUMNS, "energy", indexes, 3, &options, transports, &dataset);
    check_success(status, TURBIDITE_OK);
    for (uint64_t epoch = 10; epoch <= 30; epoch += 10) {
        size_t count = fill(epoch, epoch == 30);
        keep(epoch, count);
        check_success(turbidite_begin_epoch(dataset, epoch), TURBIDITE_OK);
        append_views(dataset, count);
        if (epoch == 20) {
            CHECK(turbidite_end_epoch_start(dataset) == TURBIDITE_OK);
            MPI_Barrier(MPI_COMM_WORLD);
            check_success(turbidite_end_epoch_wait(dataset, NULL), TURBIDITE_OK);
        } else {
            check_success(turbidite_end_epoch(dataset, NULL), TURBIDITE_OK);
        }
    }
    /* Records and entries are replaced together. */
    size_t count = fill(10, 5);
    keep(10, count);
    check_success(turbidite_begin_epoch(dataset, 10), TURBIDITE_OK);
    append_packed(dataset, count);
    check_success(turbidite_end_epoch(dataset, NULL), TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
    for (int i = 0; i < 2; i++) CHECK(turbidite_mpi_close(further[i]) == TURBIDITE_OK);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } PARTS[] = {{"epochs", part_epochs}, {"restart", part_restart}, {"token", part_token},
                 {"failures", part_failures}, {"schemas", part_schemas},
                 {"indexes", part_indexes}};
    CHECK(argc == 4);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    dataset_path = argv[2];
    records_path = argv[3];
    /* Both ways to open, the second as Fortran's module has it. */
    int as_fortran = strcmp(argv[1], "token") == 0;
    int opened = as_fortran ? turbidite_mpi_open_fortran(MPI_Comm_c2f(MPI_COMM_WORLD), &transport)
                            : turbidite_mpi_open(MPI_COMM_WORLD, &transport);
    CHECK(opened == TURBIDITE_OK);
    int found = 0;
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        if (strcmp(PARTS[i].name, argv[1]) != 0) continue;
        PARTS[i].run();
        found = 1;
    }
    CHECK(found);
    CHECK(turbidite_mpi_close(transport) == TURBIDITE_OK);
    MPI_Finalize();
    if (rank == 0) puts("ok");
    return 0;
}
