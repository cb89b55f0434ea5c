/*
 * Ranks on several hosts write epochs. What a rank has to say goes to a file of its own, since the standard output of a
 * host that is cut off goes nowhere; test_hosts.py and test_lost_hosts.py read it.
 *
 *     epochs FOLDER FIRST LAST ROWS STALL_S [PAUSE]
 *
 * FOLDER/dataset      the dataset
 * FOLDER/records      what each rank appends, packed as the schema has it: E.<epoch>/records.<rank>
 * FOLDER/said.<rank>  one line for each thing that happens; after a failure the seconds since the last thing that worked
 * FOLDER/half.<rank>  this rank has appended half of its records of epoch PAUSE; it appends the other half once
 *                     FOLDER/go is there. Epoch 0 stands for the moment before the dataset is opened. STALL_S counts for
 *                     that epoch; for the others a limit that no load of the machine reaches
 * FOLDER/leave        a rank that has failed waits for this before it ends the job
 *
 * BREAK_LOCK in the environment takes the dataset's lock over.
 */
#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "turbidite_mpi.h"

enum { COLUMNS = 2, RECORD_BYTES = 12, PIECE = 5000, WORDS = 1024, AMPLE_STALL_S = 120 };

static const turbidite_column SCHEMA[COLUMNS] = {{"energy", TURBIDITE_F32, 0, "mc^2"}, {"id", TURBIDITE_U64, 0, NULL}};

static int rank, ranks;
static const char *folder;
static FILE *said;
static double last_success;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(said, format, arguments);
    va_end(arguments);
    fputc('\n', said);
    fflush(said);
}

static void path_to(char *path, const char *name) {
    snprintf(path, WORDS, "%s/%s", folder, name);
}

static void mark(const char *what) {
    char name[64], path[WORDS];
    snprintf(name, sizeof name, "%s.%d", what, rank);
    path_to(path, name);
    FILE *file = fopen(path, "w");
    if (file) fclose(file);
}

static void wait_for(const char *name) {
    char path[WORDS];
    path_to(path, name);
    while (access(path, F_OK) != 0) usleep(10000);
}

/* Waits in MPI, as programs do: what this rank has sent may need it to leave. */
static void pause_here(void) {
    char path[WORDS];
    path_to(path, "go");
    mark("half");
    for (int found; access(path, F_OK) != 0; usleep(10000))
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

static void end_job(int status) {
    MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status); /* MPICH's may return */
}

/* A call has failed. Closing must not hang although others are gone; the job has to be ended by MPI_Abort then, since
 * MPI_Finalize would wait for them. */
static void give_up(const char *call, turbidite_dataset *dataset, turbidite_transport *transport) {
    double failed = now();
    say("failed %s %.3f %s", call, failed - last_success, turbidite_last_error());
    turbidite_status status = turbidite_close(dataset);
    say("closed dataset %d %.3f %s", (int)status, now() - failed, status == TURBIDITE_OK ? "" : turbidite_last_error());
    int closed = turbidite_mpi_close(transport);
    say("closed transport %d %.3f %s", closed, now() - failed, closed == TURBIDITE_OK ? "" : turbidite_mpi_last_error());
    wait_for("leave");
    end_job(7);
}

typedef struct particle {
    uint64_t id;
    float energy;
} particle;

/* Energies of all ranks overlap and grow from epoch to epoch. */
static void fill(particle *particles, size_t rows, uint64_t epoch) {
    uint64_t state = epoch * 1000003 + (uint64_t)rank;
    for (size_t i = 0; i < rows; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double uniform = ((double)(state >> 11) + 0.5) / 9007199254740992.0;
        particles[i] = (particle){(uint64_t)rank << 32 | i, (float)(-log(uniform) * (double)(epoch + 1))};
    }
}

static int keep(const particle *particles, size_t rows, uint64_t epoch) {
    char name[64], path[WORDS];
    snprintf(name, sizeof name, "records/E.%llu", (unsigned long long)epoch);
    path_to(path, name);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return 0;
    snprintf(name, sizeof name, "records/E.%llu/records.%d", (unsigned long long)epoch, rank);
    path_to(path, name);
    FILE *file = fopen(path, "w");
    if (!file) return 0;
    for (size_t i = 0; i < rows; i++) {
        unsigned char packed[RECORD_BYTES];
        memcpy(packed, &particles[i].energy, 4);
        memcpy(packed + 4, &particles[i].id, 8);
        if (fwrite(packed, sizeof packed, 1, file) != 1) break;
    }
    return fclose(file) == 0;
}

static turbidite_status append(turbidite_dataset *dataset, const particle *from, size_t rows) {
    for (size_t begin = 0; begin < rows; begin += PIECE) {
        const particle *first = &from[begin];
        turbidite_view views[COLUMNS] = {turbidite_values(&first->energy, sizeof *first), turbidite_values(&first->id, sizeof *first)};
        size_t piece = rows - begin < PIECE ? rows - begin : PIECE;
        turbidite_status status = turbidite_append(dataset, views, COLUMNS, piece);
        if (status != TURBIDITE_OK) return status;
    }
    return TURBIDITE_OK;
}

/* One epoch. NULL, or the call that failed. */
static const char *write_epoch(turbidite_dataset *dataset, uint64_t epoch, particle *particles, size_t rows, int paused) {
    turbidite_status status = turbidite_begin_epoch(dataset, epoch);
    if (status == TURBIDITE_SKIPPED) {
        say("skipped %llu", (unsigned long long)epoch);
        return NULL;
    }
    if (status != TURBIDITE_OK) return "begin_epoch";
    fill(particles, rows, epoch);
    if (!keep(particles, rows, epoch)) say("cannot keep the records of epoch %llu", (unsigned long long)epoch);
    if (append(dataset, particles, rows / 2) != TURBIDITE_OK) return "append";
    if (paused) pause_here();
    last_success = now();
    if (append(dataset, particles + rows / 2, rows - rows / 2) != TURBIDITE_OK) return "append";
    turbidite_epoch_metrics metrics = {.struct_size = sizeof metrics};
    if (turbidite_end_epoch(dataset, &metrics) != TURBIDITE_OK) return "end_epoch";
    say("epoch %llu %llu", (unsigned long long)epoch, (unsigned long long)metrics.rows);
    say("traffic %u %u %llu %llu %llu", metrics.recipients, metrics.senders, (unsigned long long)metrics.forwarded,
        (unsigned long long)metrics.open_batch_bytes, (unsigned long long)metrics.batch_bytes);
    return NULL;
}

static turbidite_dataset *open_dataset(uint32_t stall_s, const turbidite_transport *transport) {
    char path[WORDS];
    path_to(path, "dataset");
    turbidite_options options;
    turbidite_options_init(&options);
    options.if_exists = TURBIDITE_IF_EXISTS_SKIP;
    options.break_lock = getenv("BREAK_LOCK") != NULL;
    options.stall_s = stall_s;
    turbidite_dataset *dataset = NULL;
    if (turbidite_open(path, SCHEMA, COLUMNS, "energy", &options, transport, &dataset) == TURBIDITE_OK) return dataset;
    say("failed open 0 %s", turbidite_last_error());
    /* It has failed on every rank; none ends the job before all have said so. */
    MPI_Barrier(MPI_COMM_WORLD);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    folder = argv[1];
    uint64_t first = strtoull(argv[2], NULL, 10), last = strtoull(argv[3], NULL, 10);
    size_t rows = strtoull(argv[4], NULL, 10);
    uint64_t pause = argc > 6 ? strtoull(argv[6], NULL, 10) : UINT64_MAX;
    char path[WORDS], name[64];
    snprintf(name, sizeof name, "said.%d", rank);
    path_to(path, name);
    said = fopen(path, "a");
    particle *particles = malloc(rows * sizeof *particles);
    if (!said || !particles) end_job(3);
    turbidite_transport *transport;
    if (turbidite_mpi_open(MPI_COMM_WORLD, &transport) != TURBIDITE_OK) end_job(4);
    if (pause == 0) pause_here();
    turbidite_dataset *dataset = open_dataset(AMPLE_STALL_S, transport);
    if (!dataset) end_job(5);
    last_success = now();
    for (uint64_t epoch = first; epoch <= last; epoch++) {
        if (epoch == pause) {
            if (turbidite_close(dataset) != TURBIDITE_OK) end_job(6);
            MPI_Barrier(MPI_COMM_WORLD);
            dataset = open_dataset((uint32_t)strtoul(argv[5], NULL, 10), transport);
            if (!dataset) end_job(5);
        }
        const char *failed = write_epoch(dataset, epoch, particles, rows, epoch == pause);
        if (failed) give_up(failed, dataset, transport);
    }
    if (turbidite_close(dataset) != TURBIDITE_OK || turbidite_mpi_close(transport) != TURBIDITE_OK)
        end_job(6);
    say("done");
    fclose(said);
    free(particles);
    MPI_Finalize();
    return 0;
}
