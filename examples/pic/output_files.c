/*
 * Output as VPIC's dump_particles does it, call by call: mkdir by every rank, fopen, 32 small fwrites for the header,
 * fwrites of records from one static buffer that is reused, fclose. This is the program that Turbidite has to take over
 * unmodified, so nothing here knows of Turbidite.
 */
#define _POSIX_C_SOURCE 200809L /* mkdir, fileno, fsync */

#include "output.h"

#include "../vpic/vpic_header.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VPIC_RECORD_BYTES offsetof(struct particle, id)
#define PATH_BYTES 128
#define CHARGE_PER_MASS (-1.0f)

struct output {
    struct output_options options;
};

const char output_kind[] = "files";

static int complain(const char *what, const char *path)
{
    fprintf(stderr, "pic: cannot %s %s: %s\n", what, path, strerror(errno));
    return -1;
}

/* Every rank makes the folder; one of them is the first. */
static int make_folder(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : complain("make the folder", path);
}

int output_open(const struct output_options *options, struct output **output)
{
    *output = allocate(1, sizeof **output);
    (*output)->options = *options;
    return make_folder("particle");
}

static int write_header(FILE *file, const struct simulation *simulation, size_t record_bytes)
{
    const struct grid *grid = &simulation->grid;
    struct vpic_header header = {
        .step = simulation->step,
        .nx = grid->nx, .ny = grid->ny, .nz = 1,
        .dt = (float)grid->dt,
        .dx = (float)grid->cell, .dy = (float)grid->cell, .dz = (float)grid->cell,
        .x0 = 0, .y0 = (float)(grid->first_row * grid->cell), .z0 = 0,
        .light_speed = 1, .permittivity = 1, .damping = 0,
        .rank = grid->rank, .ranks = grid->ranks,
        .species = 0, .charge_per_mass = CHARGE_PER_MASS,
        .element_bytes = (int32_t)record_bytes,
        .count = (int32_t)simulation->particles.count,
    };
    unsigned char packed[VPIC_HEADER_BYTES];
    vpic_header_pack(&header, packed);
    const unsigned char *field = packed;
    for (int index = 0; index < VPIC_HEADER_FIELDS; index++) {
        if (fwrite(field, vpic_header_field_bytes[index], 1, file) != 1)
            return -1;
        field += vpic_header_field_bytes[index];
    }
    return 0;
}

/* The records, centred in time as VPIC's are. Plain ones are moved together in the buffer, without their tags. */
static int write_records(FILE *file, const struct simulation *simulation, size_t record_bytes)
{
    static struct particle buffer[OUTPUT_BUFFER_PARTICLES];
    const struct particles *particles = &simulation->particles;
    for (size_t done = 0; done < particles->count;) {
        size_t count = particles->count - done;
        if (count > OUTPUT_BUFFER_PARTICLES)
            count = OUTPUT_BUFFER_PARTICLES;
        center_momenta(&simulation->grid, &simulation->fields, particles->list + done, count, buffer);
        if (record_bytes != sizeof *buffer)
            for (size_t index = 1; index < count; index++)
                memmove((char *)buffer + index * record_bytes, buffer + index, record_bytes);
        if (fwrite(buffer, record_bytes, count, file) != count)
            return -1;
        done += count;
    }
    return 0;
}

int output_dump(struct output *output, const struct simulation *simulation)
{
    char path[PATH_BYTES];
    size_t record_bytes = output->options.plain ? VPIC_RECORD_BYTES : sizeof(struct particle);
    snprintf(path, sizeof path, "particle/T.%d", simulation->step);
    if (make_folder(path) != 0)
        return -1;
    snprintf(path, sizeof path, "particle/T.%d/eparticle.%d.%d", simulation->step, simulation->step,
             simulation->grid.rank);
    FILE *file = fopen(path, "w");
    if (!file)
        return complain("open", path);
    int failed =
        write_header(file, simulation, record_bytes) != 0 || write_records(file, simulation, record_bytes) != 0;
    if (!failed && output->options.sync)
        failed = fflush(file) != 0 || fsync(fileno(file)) != 0;
    if (failed)
        complain("write", path);
    if (fclose(file) != 0 && !failed)
        return complain("close", path);
    return failed ? -1 : 0;
}

int output_close(struct output *output)
{
    free(output);
    return 0;
}
