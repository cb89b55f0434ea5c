/*
 * Programs that misuse the library: misuse CASE DATASET. Statuses are ignored, as in many programs, unless a case is about
 * them. With -DWITH_MPI, all ranks of MPI_COMM_WORLD take part, and RANK is the one that makes the mistake.
 */
#define TURBIDITE_UNCHECKED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_MPI
#include <turbidite_mpi.h>
#else
#include <turbidite.h>
#endif

enum { COUNT = 1000, RANK = 1 };

struct particle {
    float energy;
    char name[6];
    uint64_t id;
};

static struct particle p[COUNT];
static const turbidite_column COLUMNS[] = {
    {"energy", TURBIDITE_F32, 0, NULL}, {"id", TURBIDITE_U64, 0, NULL}, {"name", TURBIDITE_BYTES, 6, NULL}};
static turbidite_dataset *dataset;
static turbidite_transport *transport;
static int is_wrong = 1;

static void open_dataset(const char *path, int breaks_lock) {
    turbidite_options options;
    turbidite_options_init(&options);
    options.break_lock = breaks_lock;
    turbidite_open(path, COLUMNS, 3, "energy", &options, transport, &dataset);
}

/* Writes an epoch, with a wrong view where the case has one. */
static void write_epoch(uint64_t epoch, const char *wrong) {
    static double doubles[COUNT];
    static long long signed_ids[COUNT];
    turbidite_view views[] = {turbidite_values(&p[0].energy, sizeof p[0]), turbidite_values(&p[0].id, sizeof p[0]),
                              turbidite_values(&p[0].name, sizeof p[0])};
    size_t count = sizeof views / sizeof views[0];
    if (is_wrong && strcmp(wrong, "doubles") == 0) views[0] = turbidite_values(doubles, sizeof doubles[0]);
    if (is_wrong && strcmp(wrong, "signed") == 0) views[1] = turbidite_values(signed_ids, sizeof signed_ids[0]);
    if (is_wrong && strcmp(wrong, "untyped") == 0) views[0] = (turbidite_view){&p[0].energy, sizeof p[0], 0, 0};
    if (is_wrong && strcmp(wrong, "decayed") == 0) views[2] = turbidite_values(p[0].name, sizeof p[0]);
    if (is_wrong && strcmp(wrong, "swapped") == 0) views[0] = turbidite_values(&p[0].id, sizeof p[0]);
    if (is_wrong && strcmp(wrong, "nowhere") == 0) views[1].data = NULL;
    if (is_wrong && strcmp(wrong, "narrow") == 0) views[1].stride = 4;
    if (is_wrong && strcmp(wrong, "fewer") == 0) count--;
    turbidite_begin_epoch(dataset, epoch);
    turbidite_append(dataset, views, count, COUNT / 2);
    if (is_wrong && strcmp(wrong, "packed") == 0)
        turbidite_append_rows(dataset, p, sizeof p[0], COUNT / 2);
    else
        turbidite_append(dataset, views, count, COUNT / 2);
    turbidite_end_epoch(dataset, NULL);
}

static void constant(void) {
    static const float charge = -1;
    turbidite_view views[] = {turbidite_values(&charge, 0), turbidite_values(&p[0].id, sizeof p[0]),
                              turbidite_values(&p[0].name, sizeof p[0])};
    turbidite_begin_epoch(dataset, 7);
    turbidite_append(dataset, views, 3, COUNT);
    turbidite_end_epoch(dataset, NULL);
}

static void begin_twice(void) {
    turbidite_begin_epoch(dataset, 1);
    turbidite_begin_epoch(dataset, 2);
    turbidite_end_epoch(dataset, NULL);
}

static void append_early(void) {
    turbidite_view views[] = {turbidite_values(&p[0].energy, sizeof p[0]), turbidite_values(&p[0].id, sizeof p[0]),
                              turbidite_values(&p[0].name, sizeof p[0])};
    turbidite_append(dataset, views, 3, COUNT);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *wrong = argv[1];
    for (uint64_t i = 0; i < COUNT; i++) {
        p[i] = (struct particle){.energy = (float)i, .id = i};
        memcpy(p[i].name, "abcdef", 6);
    }
#ifdef WITH_MPI
    int rank;
    if (strcmp(wrong, "early") == 0) turbidite_mpi_open(MPI_COMM_WORLD, &transport);
    MPI_Init(&argc, &argv);
    if (strcmp(wrong, "early") == 0) {
        printf("last error: %s\n", turbidite_last_error());
        return MPI_Finalize();
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_wrong = rank == RANK;
    turbidite_transport *opened;
    if (turbidite_mpi_open(MPI_COMM_WORLD, &opened) != TURBIDITE_OK) return 1;
    /* One rank has the lock when the others come. */
    if (strcmp(wrong, "alone") != 0) transport = opened;
    if (strcmp(wrong, "alone") == 0 && rank > 0) MPI_Barrier(MPI_COMM_WORLD);
#endif
    if (strcmp(wrong, "silent") == 0) turbidite_print_errors(0);
    open_dataset(argv[2], strcmp(wrong, "breaks") == 0);
#ifdef WITH_MPI
    if (strcmp(wrong, "alone") == 0) {
        if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (strcmp(wrong, "shared") == 0) {
        char other[4096];
        turbidite_dataset *second;
        snprintf(other, sizeof other, "%s-other", argv[2]);
        turbidite_open(other, COLUMNS, 3, "energy", NULL, transport, &second);
    }
#endif
    if (strcmp(wrong, "before") == 0) append_early();
    if (strcmp(wrong, "constant") == 0)
        constant();
    else if (strcmp(wrong, "inside") == 0)
        begin_twice();
    else
        for (uint64_t epoch = 1; epoch <= 2; epoch++) write_epoch(epoch, wrong);
    if (strcmp(wrong, "open") == 0) turbidite_begin_epoch(dataset, 9);
    turbidite_close(dataset);
#ifdef WITH_MPI
    turbidite_mpi_close(opened);
    MPI_Finalize();
#endif
    printf("done\n");
    return 0;
}
