/*
 * Output through Turbidite's C interface: each dump is an epoch of the dataset particles.tbd, sorted by energy.
 *
 * The energy is derived here, in double precision from the momenta as they are stored, and then rounded: that is what
 * `turbidite ingest` derives from the files of the other build, so that both hold the same rows.
 */
#include "output.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <turbidite.h>
#include <turbidite_mpi.h>

#define COLUMNS 11
#define DATASET "particles.tbd"

struct record {
    struct particle particle;
    float energy;
};

struct output {
    int plain;
    turbidite_transport *transport;
    turbidite_dataset *dataset;
};

const char output_kind[] = "turbidite";

/* The schema, and where each column lies in a record. The tags come last, so that plain output can leave them off. */
static const struct {
    turbidite_column column;
    size_t offset;
} LAYOUT[COLUMNS] = {
    {{"dx", TURBIDITE_F32, 0, "half cells"}, offsetof(struct record, particle.dx)},
    {{"dy", TURBIDITE_F32, 0, "half cells"}, offsetof(struct record, particle.dy)},
    {{"dz", TURBIDITE_F32, 0, "half cells"}, offsetof(struct record, particle.dz)},
    {{"i", TURBIDITE_I32, 0, NULL}, offsetof(struct record, particle.i)},
    {{"ux", TURBIDITE_F32, 0, "m c"}, offsetof(struct record, particle.ux)},
    {{"uy", TURBIDITE_F32, 0, "m c"}, offsetof(struct record, particle.uy)},
    {{"uz", TURBIDITE_F32, 0, "m c"}, offsetof(struct record, particle.uz)},
    {{"w", TURBIDITE_F32, 0, NULL}, offsetof(struct record, particle.w)},
    {{"energy", TURBIDITE_F32, 0, "m c^2"}, offsetof(struct record, energy)},
    {{"id", TURBIDITE_I64, 0, NULL}, offsetof(struct record, particle.id)},
    {{"origin", TURBIDITE_I64, 0, NULL}, offsetof(struct record, particle.origin)},
};

static size_t column_count(const struct output *output)
{
    return output->plain ? COLUMNS - 2 : COLUMNS;
}

static int complain(const char *what)
{
    fprintf(stderr, "pic: cannot %s\n", what);
    return -1;
}

int output_open(const struct output_options *options, struct output **output)
{
    *output = allocate(1, sizeof **output);
    (*output)->plain = options->plain;
    if (turbidite_mpi_open(MPI_COMM_WORLD, &(*output)->transport) != 0)
        return complain("open Turbidite's transport");
    turbidite_column columns[COLUMNS];
    for (int index = 0; index < COLUMNS; index++)
        columns[index] = LAYOUT[index].column;
    if (turbidite_open(DATASET, columns, column_count(*output), "energy", NULL, (*output)->transport,
                       &(*output)->dataset) != TURBIDITE_OK)
        return complain("open " DATASET);
    return 0;
}

/* Appends all particles, a buffer at a time. */
static turbidite_status append_particles(struct output *output, const struct simulation *simulation)
{
    static struct particle centred[OUTPUT_BUFFER_PARTICLES];
    static struct record buffer[OUTPUT_BUFFER_PARTICLES];
    turbidite_view views[COLUMNS];
    for (int index = 0; index < COLUMNS; index++)
        views[index] = turbidite_column_values(&LAYOUT[index].column, (const char *)buffer + LAYOUT[index].offset, sizeof *buffer);
    const struct particles *particles = &simulation->particles;
    for (size_t done = 0; done < particles->count;) {
        size_t count = particles->count - done;
        if (count > OUTPUT_BUFFER_PARTICLES)
            count = OUTPUT_BUFFER_PARTICLES;
        center_momenta(&simulation->grid, &simulation->fields, particles->list + done, count, centred);
        for (size_t index = 0; index < count; index++) {
            double ux = centred[index].ux, uy = centred[index].uy, uz = centred[index].uz;
            buffer[index].particle = centred[index];
            buffer[index].energy = (float)(sqrt(1 + ux * ux + uy * uy + uz * uz) - 1);
        }
        turbidite_status status = turbidite_append(output->dataset, views, column_count(output), count);
        if (status != TURBIDITE_OK)
            return status;
        done += count;
    }
    return TURBIDITE_OK;
}

int output_dump(struct output *output, const struct simulation *simulation)
{
    if (turbidite_begin_epoch(output->dataset, (uint64_t)simulation->step) != TURBIDITE_OK)
        return complain("begin an epoch");
    /* A rank that could not append still joins in ending the epoch, which is collective. */
    int failed = append_particles(output, simulation) != TURBIDITE_OK && complain("append particles") != 0;
    if (turbidite_end_epoch(output->dataset, NULL) != TURBIDITE_OK)
        failed = complain("end the epoch") != 0;
    return failed ? -1 : 0;
}

int output_close(struct output *output)
{
    int failed = turbidite_close(output->dataset) != TURBIDITE_OK && complain("close " DATASET) != 0;
    if (output->transport && turbidite_mpi_close(output->transport) != 0)
        failed = complain("close Turbidite's transport") != 0;
    free(output);
    return failed ? -1 : 0;
}
