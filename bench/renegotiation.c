/*
 * How long it takes ranks over MPI to agree on a partition table: for SECONDS every rank asks for the next table as soon as
 * it has one, and appends a few records in between, so that there is something to agree on. Rounds follow each other
 * without a gap, so their number in the time is what one takes.
 *
 *     renegotiation FOLDER PIVOTS SECONDS
 *
 * Rank 0 prints one line of JSON.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "turbidite_mpi.h"

enum { ROWS = 64 };

static void check(int ok, const char *call) {
    if (ok) return;
    fprintf(stderr, "renegotiation: %s: %s %s\n", call, turbidite_last_error(), turbidite_mpi_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: renegotiation FOLDER PIVOTS SECONDS\n");
        return 2;
    }
    const double wanted_s = atof(argv[3]);
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    turbidite_transport *transport = NULL;
    check(turbidite_mpi_open(MPI_COMM_WORLD, &transport) == TURBIDITE_OK, "turbidite_mpi_open");
    const turbidite_column schema[] = {{"energy", TURBIDITE_F32, 0, NULL}};
    turbidite_options options;
    turbidite_options_init(&options);
    options.pivots = (uint32_t)atoi(argv[2]);
    /* Tables come when they are asked for. */
    options.renegotiate = UINT64_MAX;
    turbidite_dataset *dataset = NULL;
    check(turbidite_open(argv[1], schema, 1, "energy", &options, transport, &dataset) == TURBIDITE_OK, "turbidite_open");
    check(turbidite_begin_epoch(dataset, 0) == TURBIDITE_OK, "turbidite_begin_epoch");
    uint64_t state = (uint64_t)rank + 1;
    const double begun = MPI_Wtime();
    double end;
    while ((end = MPI_Wtime()) - begun < wanted_s) {
        float energies[ROWS];
        for (int i = 0; i < ROWS; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            energies[i] = (float)-log(((double)(state >> 11) + 0.5) / 9007199254740992.0);
        }
        const turbidite_view view = turbidite_values(energies, sizeof *energies);
        check(turbidite_append(dataset, &view, 1, ROWS) == TURBIDITE_OK, "turbidite_append");
        check(turbidite_renegotiate(dataset) == TURBIDITE_OK, "turbidite_renegotiate");
    }
    turbidite_epoch_metrics metrics = {.struct_size = sizeof metrics};
    check(turbidite_end_epoch(dataset, &metrics) == TURBIDITE_OK, "turbidite_end_epoch");
    if (rank == 0)
        printf("{\"ranks\": %d, \"pivots\": %s, \"tables\": %llu, \"round_ms\": %.3f, \"rows\": %llu}\n", ranks, argv[2],
               (unsigned long long)metrics.renegotiations, 1e3 * (end - begun) / (double)metrics.renegotiations,
               (unsigned long long)metrics.rows);
    check(turbidite_close(dataset) == TURBIDITE_OK, "turbidite_close");
    check(turbidite_mpi_close(transport) == TURBIDITE_OK, "turbidite_mpi_close");
    MPI_Finalize();
    return 0;
}
