/*
 * A two-dimensional, relativistic, electromagnetic particle-in-cell code: what its files share.
 *
 * Scheme (Birdsall & Langdon, "Plasma Physics via Computer Simulation", chapters 4, 8, 10 and 15):
 *   fields     Yee's staggered leapfrog (Yee 1966), all six components, nothing varies along z
 *   momenta    Boris push (Boris 1970; Birdsall & Langdon, chapters 4 and 15), half a step behind the positions
 *   current    linear weighting that conserves charge (Esirkepov 2001), so Gauss's law needs no correction
 *   gather     the electric field with the very weights that deposit current ("energy-conserving", chapter 10),
 *              the magnetic field, which does no work, linearly from where it lies
 *
 * Units: c = eps0 = electron mass = elementary charge = 1 and plasma frequency = 1 at the mean density; so lengths are
 * in skin depths, momenta in m c and energies in m c^2. Ions do not move: they lie where the electrons began.
 *
 * Domain: periodic, cut into strips of rows, one per rank. A strip has at least ROWS_LEAST rows, so that ghost rows
 * come from the nearest neighbour alone. A particle moves less than a cell per step, so it never passes a neighbour.
 *
 * MPI's errors end the program (MPI_ERRORS_ARE_FATAL, the default), so its return codes are not looked at.
 */
#ifndef PIC_H
#define PIC_H

#include <stddef.h>
#include <stdint.h>

#define PI 3.14159265358979323846
#define ELECTRON_CHARGE (-1.0)
#define GHOSTS_LOW 1   /* rows below and columns left of the strip */
#define GHOSTS_HIGH 2  /* rows above and columns right of it: linear weighting reaches one node further there */
#define ROWS_LEAST 2

/* A rank's strip. Cells are numbered from 1; 0 and n + 1 are ghosts, as in VPIC. */
struct grid {
    int nx, ny;         /* cells of the strip */
    int ny_global;      /* rows of all strips */
    int first_row;      /* rows below the strip */
    double cell;        /* edge of a cell, also its depth along z */
    double dt;
    int rank, ranks;
    int lower, upper;   /* the ranks of the strips below and above */
};

struct vector {
    double x, y, z;
};

/*
 * Fields on the staggered grid, (nx + 3) * (ny + 3) vectors each, at node_index(ix, iy). With (i, j) the low corner of
 * the cell, components lie at
 *   e.x, j.x, b.y   (i + 1/2, j)       e.z, j.z   (i, j)
 *   e.y, j.y, b.x   (i, j + 1/2)       b.z        (i + 1/2, j + 1/2)
 * Between steps e and b are at the time of the positions; ghosts of e are current, and those of b as far as they are
 * read.
 */
struct fields {
    struct vector *e, *b, *j;
    struct vector *initial_charge;  /* .x: charge density of the electrons as loaded; the ions' is its negative */
    double drive;                   /* amplitude of the antenna's current density; 0: no antenna */
    double drive_work;              /* energy the antenna has put into this strip so far */
};

/* A particle, in memory as in a dump: VPIC's 32 bytes, then CARP's two tags. */
struct particle {
    float dx, dy, dz;   /* position in the cell, -1 ... 1 */
    int32_t i;          /* cell, as voxel_index has it */
    float ux, uy, uz;   /* momentum / (m c) */
    float w;            /* electrons it stands for */
    int64_t id;         /* the same whatever the number of ranks */
    int64_t origin;     /* rank on which it was loaded */
};

struct particles {
    struct particle *list;
    size_t count, capacity;
    struct particle *spare;  /* of the same capacity, for sorting */
};

struct simulation {
    struct grid grid;
    struct fields fields;
    struct particles particles;
    int step;
};

static inline int node_stride(const struct grid *grid)
{
    return grid->nx + GHOSTS_LOW + GHOSTS_HIGH;
}

static inline size_t node_index(const struct grid *grid, int ix, int iy)
{
    return (size_t)iy * (size_t)node_stride(grid) + (size_t)ix;
}

static inline size_t node_count(const struct grid *grid)
{
    return (size_t)node_stride(grid) * (size_t)(grid->ny + GHOSTS_LOW + GHOSTS_HIGH);
}

/* VPIC's number of a cell; the grid is one cell deep, which is number 1 along z. */
static inline int32_t voxel_index(const struct grid *grid, int ix, int iy)
{
    return ix + (grid->nx + 2) * (iy + (grid->ny + 2));
}

static inline void voxel_cell(const struct grid *grid, int32_t voxel, int *ix, int *iy)
{
    *iy = voxel / (grid->nx + 2) - (grid->ny + 2);
    *ix = voxel % (grid->nx + 2);
}

/* grid.c: strips and their ghosts. All are collective. */
int grid_init(struct grid *grid, int nx, int ny_global, double cell);
void grid_fill_ghosts(const struct grid *grid, struct vector *nodes);
void grid_add_ghosts(const struct grid *grid, struct vector *nodes);
/* Zeroed memory; ends the program on all ranks when there is none. */
void *allocate(size_t count, size_t bytes);

/* fields.c: Maxwell's equations and the antenna. */
void fields_init(const struct grid *grid, struct fields *fields, double drive, double magnetic);
void fields_advance_magnetic_half(const struct grid *grid, struct fields *fields);
void fields_advance_electric(const struct grid *grid, struct fields *fields, int step);
double fields_energy(const struct grid *grid, const struct fields *fields);
/* The largest difference between the magnetic field in this strip's ghosts and where it belongs. Collective. */
double fields_ghost_error(const struct grid *grid, const struct fields *fields);
void fields_free(struct fields *fields);

/* particles.c: where the particles are. */
struct plasma {
    int per_cell;
    double drift;    /* momentum of the two beams, along +x and -x */
    double thermal;  /* spread of each momentum component */
    int wave;        /* not 0: a quiet start, with a wave of so many wavelengths along x */
    uint64_t seed;
};
void particles_load(const struct grid *grid, struct particles *particles, const struct plasma *plasma);
void particles_migrate(const struct grid *grid, struct particles *particles);
void particles_sort(const struct grid *grid, struct particles *particles);
void particles_free(struct particles *particles);

/* push.c: how particles and fields act on each other. */
void push_and_deposit(const struct grid *grid, struct fields *fields, struct particles *particles);
/* Copies particles with their momenta brought to the time of the positions, as VPIC dumps them. */
void center_momenta(const struct grid *grid, const struct fields *fields, const struct particle *from, size_t count,
                    struct particle *to);
double kinetic_energy(const struct grid *grid, const struct fields *fields, const struct particles *particles);
/* Charge density of the electrons at the nodes, in .x. Collective. */
void deposit_charge(const struct grid *grid, const struct particles *particles, struct vector *nodes);

#endif
