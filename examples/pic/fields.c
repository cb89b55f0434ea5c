/*
 * Maxwell's equations by Yee's scheme (Yee 1966; Birdsall & Langdon, chapter 15), and the antenna that heats.
 *
 * The magnetic field advances in two halves around the electric one, so that both are known at the time of the
 * positions. With the ghosts of e current, b is advanced on the ghosts it is read at as well: only e ever travels.
 *
 * The antenna is two sheared currents with one wave in the box each, along x as cos(k y) and along y as cos(k x). They
 * are free of divergence, so they carry no charge and Gauss's law holds without them. Their frequencies lie below the
 * plasma frequency and have no small common multiple: the fields stir the plasma and heat it steadily. Near the plasma
 * frequency it would swing along with a single wave and give most of the energy back.
 */
#include "pic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In plasma frequencies. */
#define FREQUENCY_ALONG_X 0.3
#define FREQUENCY_ALONG_Y 0.19

/* `magnetic` is a uniform field along z. */
void fields_init(const struct grid *grid, struct fields *fields, double drive, double magnetic)
{
    fields->e = allocate(node_count(grid), sizeof *fields->e);
    fields->b = allocate(node_count(grid), sizeof *fields->b);
    fields->j = allocate(node_count(grid), sizeof *fields->j);
    fields->initial_charge = allocate(node_count(grid), sizeof *fields->initial_charge);
    fields->drive = drive;
    fields->drive_work = 0;
    for (size_t node = 0; node < node_count(grid); node++)
        fields->b[node].z = magnetic;
}

void fields_free(struct fields *fields)
{
    free(fields->e);
    free(fields->b);
    free(fields->j);
    free(fields->initial_charge);
}

/* dB/dt = -curl E over half a step, on the strip and on one layer of ghosts around it. */
void fields_advance_magnetic_half(const struct grid *grid, struct fields *fields)
{
    double step = 0.5 * grid->dt / grid->cell;
    int stride = node_stride(grid);
    for (int iy = 0; iy <= grid->ny + 1; iy++)
        for (int ix = 0; ix <= grid->nx + 1; ix++) {
            size_t here = node_index(grid, ix, iy);
            const struct vector *e = fields->e + here, *right = e + 1, *above = e + stride;
            struct vector *b = fields->b + here;
            b->x -= step * (above->z - e->z);
            b->y += step * (right->z - e->z);
            b->z += step * ((above->x - e->x) - (right->y - e->y));
        }
}

/* dE/dt = curl B - J over a whole step. The antenna's energy is its work against the field's mean over the step. */
void fields_advance_electric(const struct grid *grid, struct fields *fields, int step)
{
    double curl = grid->dt / grid->cell, volume = grid->cell * grid->cell * grid->cell;
    double time = (step + 0.5) * grid->dt, work = 0;
    double along_x = fields->drive * sin(FREQUENCY_ALONG_X * time);
    double along_y = fields->drive * sin(FREQUENCY_ALONG_Y * time);
    int stride = node_stride(grid);
    for (int iy = 1; iy <= grid->ny; iy++) {
        double antenna_x = along_x * cos(2 * PI * (grid->first_row + iy - 1) / grid->ny_global);
        for (int ix = 1; ix <= grid->nx; ix++) {
            size_t here = node_index(grid, ix, iy);
            const struct vector *b = fields->b + here, *left = b - 1, *below = b - stride, *j = fields->j + here;
            struct vector *e = fields->e + here, before = *e;
            double antenna_y = along_y * cos(2 * PI * (ix - 1) / grid->nx);
            e->x += curl * (b->z - below->z) - grid->dt * (j->x + antenna_x);
            e->y += -curl * (b->z - left->z) - grid->dt * (j->y + antenna_y);
            e->z += curl * ((b->y - left->y) - (b->x - below->x)) - grid->dt * j->z;
            work -= 0.5 * (antenna_x * (before.x + e->x) + antenna_y * (before.y + e->y)) * grid->dt * volume;
        }
    }
    fields->drive_work += work;
    grid_fill_ghosts(grid, fields->e);
}

/* The energy of the fields in the strip. */
double fields_energy(const struct grid *grid, const struct fields *fields)
{
    double sum = 0;
    for (int iy = 1; iy <= grid->ny; iy++)
        for (int ix = 1; ix <= grid->nx; ix++) {
            const struct vector *e = fields->e + node_index(grid, ix, iy), *b = fields->b + node_index(grid, ix, iy);
            sum += e->x * e->x + e->y * e->y + e->z * e->z + b->x * b->x + b->y * b->y + b->z * b->z;
        }
    return 0.5 * sum * grid->cell * grid->cell * grid->cell;
}

/* The ghosts that fields_advance_magnetic_half keeps, against what the strips that own them have. */
double fields_ghost_error(const struct grid *grid, const struct fields *fields)
{
    struct vector *owned = allocate(node_count(grid), sizeof *owned);
    memcpy(owned, fields->b, node_count(grid) * sizeof *owned);
    grid_fill_ghosts(grid, owned);
    double largest = 0;
    for (int iy = 0; iy <= grid->ny + 1; iy++)
        for (int ix = 0; ix <= grid->nx + 1; ix++) {
            const struct vector *here = fields->b + node_index(grid, ix, iy), *there = owned + node_index(grid, ix, iy);
            largest = fmax(largest, fabs(here->x - there->x) + fabs(here->y - there->y) + fabs(here->z - there->z));
        }
    free(owned);
    return largest;
}
