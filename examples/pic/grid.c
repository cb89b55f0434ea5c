/*
 * Domain decomposition: strips of rows, periodic in both directions.
 *
 * Along x a strip is its own neighbour, so columns are copied; along y rows travel by MPI. One rank is its own
 * neighbour there too and sends to itself, which keeps a single code path for any number of ranks.
 *
 * Order matters at the corners: ghosts are filled columns first, so that the rows sent carry theirs; they are added up
 * the same way round, so that a corner's share first joins a ghost row and then travels with it.
 */
#include "pic.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_DOWN = 1, TAG_UP = 2 };

void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory) {
        fprintf(stderr, "pic: no memory for %zu times %zu bytes\n", count, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

int grid_init(struct grid *grid, int nx, int ny_global, double cell)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &grid->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &grid->ranks);
    if (nx < ROWS_LEAST || ny_global / grid->ranks < ROWS_LEAST)
        return -1;
    int rows = ny_global / grid->ranks, left_over = ny_global % grid->ranks;
    grid->nx = nx;
    grid->ny = rows + (grid->rank < left_over);
    grid->ny_global = ny_global;
    grid->first_row = grid->rank * rows + (grid->rank < left_over ? grid->rank : left_over);
    grid->cell = cell;
    /* Just below the limit of Yee's scheme in two dimensions, c dt < cell / sqrt(2). */
    grid->dt = 0.95 * cell / 1.4142135623730951;
    grid->lower = (grid->rank + grid->ranks - 1) % grid->ranks;
    grid->upper = (grid->rank + 1) % grid->ranks;
    return 0;
}

/* Sends rows down and up and receives as many from above and below. */
static void swap_rows(const struct grid *grid, const struct vector *down, int rows_down, struct vector *from_above,
                      const struct vector *up, int rows_up, struct vector *from_below)
{
    int doubles_per_row = 3 * node_stride(grid);
    MPI_Sendrecv(down, rows_down * doubles_per_row, MPI_DOUBLE, grid->lower, TAG_DOWN, from_above,
                 rows_down * doubles_per_row, MPI_DOUBLE, grid->upper, TAG_DOWN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(up, rows_up * doubles_per_row, MPI_DOUBLE, grid->upper, TAG_UP, from_below, rows_up * doubles_per_row,
                 MPI_DOUBLE, grid->lower, TAG_UP, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Gives every ghost the value of the node it stands for. */
void grid_fill_ghosts(const struct grid *grid, struct vector *nodes)
{
    for (int iy = 1; iy <= grid->ny; iy++) {
        struct vector *row = nodes + node_index(grid, 0, iy);
        row[0] = row[grid->nx];
        row[grid->nx + 1] = row[1];
        row[grid->nx + 2] = row[2];
    }
    swap_rows(grid, nodes + node_index(grid, 0, 1), GHOSTS_HIGH, nodes + node_index(grid, 0, grid->ny + 1),
              nodes + node_index(grid, 0, grid->ny), GHOSTS_LOW, nodes);
}

static void add_row(const struct grid *grid, struct vector *to, const struct vector *from)
{
    for (int ix = 0; ix < node_stride(grid); ix++) {
        to[ix].x += from[ix].x;
        to[ix].y += from[ix].y;
        to[ix].z += from[ix].z;
    }
}

static void add_vector(struct vector *to, struct vector from)
{
    to->x += from.x;
    to->y += from.y;
    to->z += from.z;
}

/* Adds what was deposited on ghosts to the nodes they stand for. The ghosts themselves are of no use afterwards. */
void grid_add_ghosts(const struct grid *grid, struct vector *nodes)
{
    for (int iy = 0; iy < grid->ny + GHOSTS_LOW + GHOSTS_HIGH; iy++) {
        struct vector *row = nodes + node_index(grid, 0, iy);
        add_vector(&row[grid->nx], row[0]);
        add_vector(&row[1], row[grid->nx + 1]);
        add_vector(&row[2], row[grid->nx + 2]);
    }
    size_t stride = (size_t)node_stride(grid);
    struct vector *received = allocate(stride * (GHOSTS_LOW + GHOSTS_HIGH), sizeof *received);
    struct vector *from_below = received, *from_above = received + GHOSTS_HIGH * stride;
    swap_rows(grid, nodes, GHOSTS_LOW, from_above, nodes + node_index(grid, 0, grid->ny + 1), GHOSTS_HIGH, from_below);
    add_row(grid, nodes + node_index(grid, 0, 1), from_below);
    add_row(grid, nodes + node_index(grid, 0, 2), from_below + stride);
    add_row(grid, nodes + node_index(grid, 0, grid->ny), from_above);
    free(received);
}
