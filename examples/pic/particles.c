/*
 * Loading, migration and sorting of particles.
 *
 * Loading: two beams, barely warm, along +x and -x, which is unstable to two-stream and filamentation modes (Birdsall
 * & Langdon, chapter 5; Weibel 1959). How a particle begins depends on its id and the seed alone, so any number of
 * ranks begins with the same plasma. A quiet start (Birdsall & Langdon, chapter 16) has cold beams in even rows
 * instead, displaced by one weak wave that then grows out of no noise: theory says how fast. Momenta are those of half
 * a step before the positions.
 *
 * Migration: a particle that leaves a strip is in the first row of the next one. Sending it, the rank that it leaves
 * names the column only, since the number of a cell depends on the strip's height.
 */
#include "pic.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define WAVE_DISPLACEMENT 0.001 /* cells */

enum { TAG_PARTICLES_DOWN = 3, TAG_PARTICLES_UP = 4 };

/* Makes room for `more` particles; a half more than needed, so that it is done rarely. */
static void reserve(struct particles *particles, size_t more)
{
    size_t needed = particles->count + more;
    if (needed <= particles->capacity)
        return;
    size_t capacity = needed + needed / 2;
    struct particle *list = realloc(particles->list, capacity * sizeof *list);
    if (!list) {
        fprintf(stderr, "pic: no memory for %zu particles\n", capacity);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(particles->spare);
    particles->list = list;
    particles->spare = allocate(capacity, sizeof *particles->spare);
    particles->capacity = capacity;
}

/* The splitmix64 mixing function (Steele, Lea and Flood 2014): evenly spread bits for any input. */
static uint64_t mix(uint64_t bits)
{
    bits += 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

/* A number in 0 ... 1, neither included: the draw-th of particle `id`. */
static double uniform(uint64_t seed, int64_t id, int draw)
{
    return ((double)(mix(mix(mix(seed) + (uint64_t)id) + (uint64_t)draw) >> 12) + 0.5) / (double)(1ull << 52);
}

/* A normal deviate by Box and Muller; takes two draws. */
static double normal(uint64_t seed, int64_t id, int draw)
{
    return sqrt(-2 * log(uniform(seed, id, draw))) * cos(2 * PI * uniform(seed, id, draw + 1));
}

/* Where a particle of a quiet start is in its cell, and with what momentum. `k` counts those of a cell; the beams take
 * turns. */
static void start_quietly(const struct grid *grid, const struct plasma *plasma, int ix, int k,
                          struct particle *particle)
{
    double offset = (k / 2 + 0.5) / ((plasma->per_cell + 1) / 2);
    double phase = 2 * PI * plasma->wave * (ix - 1 + offset) / grid->nx;
    particle->dx = (float)fmax(-1, fmin(1, 2 * (offset + WAVE_DISPLACEMENT * cos(phase)) - 1));
    particle->dy = particle->dz = particle->uy = particle->uz = 0;
    particle->ux = (float)(k % 2 ? plasma->drift : -plasma->drift);
}

void particles_load(const struct grid *grid, struct particles *particles, const struct plasma *plasma)
{
    uint64_t seed = plasma->seed;
    *particles = (struct particles){0};
    reserve(particles, (size_t)grid->nx * (size_t)grid->ny * (size_t)plasma->per_cell);
    for (int iy = 1; iy <= grid->ny; iy++)
        for (int ix = 1; ix <= grid->nx; ix++)
            for (int k = 0; k < plasma->per_cell; k++) {
                int64_t cell = (int64_t)(grid->first_row + iy - 1) * grid->nx + (ix - 1);
                int64_t id = cell * plasma->per_cell + k;
                struct particle *particle = particles->list + particles->count++;
                *particle = (struct particle){
                    .dx = (float)(2 * uniform(seed, id, 0) - 1),
                    .dy = (float)(2 * uniform(seed, id, 1) - 1),
                    .dz = (float)(2 * uniform(seed, id, 2) - 1),
                    .i = voxel_index(grid, ix, iy),
                    .ux = (float)(plasma->thermal * normal(seed, id, 3) + (k % 2 ? plasma->drift : -plasma->drift)),
                    .uy = (float)(plasma->thermal * normal(seed, id, 5)),
                    .uz = (float)(plasma->thermal * normal(seed, id, 7)),
                    .w = (float)(grid->cell * grid->cell * grid->cell / plasma->per_cell),
                    .id = id,
                    .origin = grid->rank,
                };
                if (plasma->wave)
                    start_quietly(grid, plasma, ix, k, particle);
            }
}

void particles_free(struct particles *particles)
{
    free(particles->list);
    free(particles->spare);
}

/* Takes in the particles that a neighbour has sent; they are now in row `iy`. */
static void receive(const struct grid *grid, struct particles *particles, int from, int tag, int iy)
{
    MPI_Message message;
    MPI_Status status;
    int bytes;
    MPI_Mprobe(from, tag, MPI_COMM_WORLD, &message, &status);
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    size_t count = (size_t)bytes / sizeof(struct particle);
    reserve(particles, count);
    struct particle *arrived = particles->list + particles->count;
    MPI_Mrecv(arrived, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    for (size_t index = 0; index < count; index++)
        arrived[index].i = voxel_index(grid, arrived[index].i, iy);
    particles->count += count;
}

/* Hands particles in the ghost rows to the neighbours. Collective. */
void particles_migrate(const struct grid *grid, struct particles *particles)
{
    size_t down = 0, up = 0, kept = 0;
    struct particle *spare = particles->spare;
    /* The spare list is filled from both ends: the two sides cannot meet, since each particle goes to one at most. */
    for (size_t index = 0; index < particles->count; index++) {
        struct particle *p = particles->list + index;
        int ix, iy;
        voxel_cell(grid, p->i, &ix, &iy);
        if (iy >= 1 && iy <= grid->ny) {
            particles->list[kept++] = *p;
            continue;
        }
        struct particle *to = iy < 1 ? &spare[down++] : &spare[particles->capacity - ++up];
        *to = *p;
        to->i = ix;
    }
    particles->count = kept;
    /* reserve() may replace the spare list while it is sent, so the ones that leave move to memory of their own. */
    struct particle *leaving = allocate(down + up, sizeof *leaving);
    for (size_t index = 0; index < down; index++)
        leaving[index] = spare[index];
    for (size_t index = 0; index < up; index++)
        leaving[down + index] = spare[particles->capacity - 1 - index];
    MPI_Request requests[2];
    MPI_Isend(leaving, (int)(down * sizeof *leaving), MPI_BYTE, grid->lower, TAG_PARTICLES_DOWN, MPI_COMM_WORLD,
              &requests[0]);
    MPI_Isend(leaving + down, (int)(up * sizeof *leaving), MPI_BYTE, grid->upper, TAG_PARTICLES_UP, MPI_COMM_WORLD,
              &requests[1]);
    receive(grid, particles, grid->upper, TAG_PARTICLES_DOWN, grid->ny);
    receive(grid, particles, grid->lower, TAG_PARTICLES_UP, 1);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    free(leaving);
}

/* Orders particles by cell, as VPIC does now and then: neighbours in memory then use the same fields. */
void particles_sort(const struct grid *grid, struct particles *particles)
{
    size_t cells = (size_t)voxel_index(grid, grid->nx, grid->ny) + 1;
    size_t *first = allocate(cells + 1, sizeof *first);
    for (size_t index = 0; index < particles->count; index++)
        first[particles->list[index].i + 1]++;
    for (size_t cell = 0; cell < cells; cell++)
        first[cell + 1] += first[cell];
    for (size_t index = 0; index < particles->count; index++)
        particles->spare[first[particles->list[index].i]++] = particles->list[index];
    struct particle *sorted = particles->spare;
    particles->spare = particles->list;
    particles->list = sorted;
    free(first);
}
