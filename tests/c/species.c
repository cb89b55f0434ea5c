/*
 * Several datasets of one program, one for each species of particle, open at the same time.
 *
 *     species FOLDER SPECIES ROWS HABIT
 *
 * HABIT: "together" has the epochs of all species open at once and appends to them by turns, "after" writes one species after
 * the other. Prints by how many bytes the process has grown at most since it opened the first dataset, without pages of
 * files: how many pages of the library's code the kernel maps beside those that run depends on its page cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_MPI
#include "turbidite_mpi.h"
#else
#include "turbidite.h"
#endif

#include "check.h"

enum { MAX_SPECIES = 16, BLOCK = 1000, EPOCHS = 2, STALL_S = 300 };

typedef struct particle {
    float energy;
    uint32_t species;
    uint64_t id;
    unsigned char rest[48];
} particle;

static const turbidite_column SCHEMA[] = {
    {"energy", TURBIDITE_F32, 0, NULL},
    {"species", TURBIDITE_U32, 0, NULL},
    {"id", TURBIDITE_U64, 0, NULL},
    {"rest", TURBIDITE_BYTES, 48, NULL},
};

static long status_bytes(const char *name) {
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    char line[256];
    long kilobytes = -1;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, strlen(name)) == 0) kilobytes = strtol(line + strlen(name) + 1, NULL, 10);
    }
    fclose(file);
    CHECK(kilobytes >= 0);
    return kilobytes * 1024;
}

/* Species have energies of their own; an id says all. */
static void append(turbidite_dataset *dataset, uint32_t species, uint64_t epoch, uint64_t first) {
    static particle block[BLOCK];
    for (uint64_t i = 0; i < BLOCK; i++) {
        uint64_t id = first + i;
        block[i].energy = (float)((id * 2654435761u + epoch) % 1000003) / 1000003.0f + (float)species;
        block[i].species = species;
        block[i].id = id;
    }
    CHECK(turbidite_append_rows(dataset, block, sizeof block[0], BLOCK) == TURBIDITE_OK);
}

int main(int argument_count, char **arguments) {
    CHECK(argument_count == 5);
    uint32_t species = (uint32_t)strtoul(arguments[2], NULL, 10);
    uint64_t rows = strtoull(arguments[3], NULL, 10);
    int together = strcmp(arguments[4], "together") == 0;
    CHECK(species <= MAX_SPECIES && rows % BLOCK == 0);
    turbidite_transport *transports[MAX_SPECIES] = {NULL};
    int rank = 0;
#ifdef WITH_MPI
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (uint32_t of = 0; of < species; of++) CHECK(turbidite_mpi_open(MPI_COMM_WORLD, &transports[of]) == TURBIDITE_OK);
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    long before = status_bytes("VmRSS") - status_bytes("RssFile");

    turbidite_dataset *datasets[MAX_SPECIES];
    turbidite_options options;
    turbidite_options_init(&options);
    options.stall_s = STALL_S;
    for (uint32_t of = 0; of < species; of++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/species-%u", arguments[1], of);
        CHECK(turbidite_open(path, SCHEMA, 4, "energy", &options, transports[of], &datasets[of]) == TURBIDITE_OK);
    }
    uint64_t begin = (uint64_t)rank * rows, end = begin + rows;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        if (together) {
            for (uint32_t of = 0; of < species; of++) CHECK(turbidite_begin_epoch(datasets[of], epoch) == TURBIDITE_OK);
            for (uint64_t first = begin; first < end; first += BLOCK) {
                for (uint32_t of = 0; of < species; of++) append(datasets[of], of, epoch, first);
            }
            /* The halves of the ends overlap as well. */
            for (uint32_t of = 0; of < species; of++) CHECK(turbidite_end_epoch_start(datasets[of]) == TURBIDITE_OK);
            for (uint32_t of = 0; of < species; of++) CHECK(turbidite_end_epoch_wait(datasets[of], NULL) == TURBIDITE_OK);
            continue;
        }
        for (uint32_t of = 0; of < species; of++) {
            CHECK(turbidite_begin_epoch(datasets[of], epoch) == TURBIDITE_OK);
            for (uint64_t first = begin; first < end; first += BLOCK) append(datasets[of], of, epoch, first);
            CHECK(turbidite_end_epoch(datasets[of], NULL) == TURBIDITE_OK);
        }
    }
    long grown = status_bytes("VmHWM") - status_bytes("RssFile") - before;
    for (uint32_t of = 0; of < species; of++) CHECK(turbidite_close(datasets[of]) == TURBIDITE_OK);
#ifdef WITH_MPI
    long most = 0;
    MPI_Reduce(&grown, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    grown = most;
    for (uint32_t of = 0; of < species; of++) CHECK(turbidite_mpi_close(transports[of]) == TURBIDITE_OK);
    MPI_Finalize();
#endif
    if (rank == 0) printf("%ld\n", grown);
    return 0;
}
