/*
 * Gather, Boris push (Birdsall & Langdon, chapter 15), charge-conserving deposition (Esirkepov 2001).
 *
 * Positions are stored as 32-bit floats. Charge is conserved to the rounding of doubles all the same, since current is
 * deposited between the positions as they are stored, not between those that were computed.
 */
#include "pic.h"

#include <math.h>
#include <string.h>

#define REACH 4 /* nodes along an axis that a particle moving by less than a cell touches */

static double lorentz_factor(struct vector u)
{
    return sqrt(1 + u.x * u.x + u.y * u.y + u.z * u.z);
}

/* Linear weighting between the four nodes around (fx, fy), which is in cells from the node `corner`. */
static double bilinear(const double *corner, int stride_doubles, double fx, double fy)
{
    const double *above = corner + stride_doubles;
    return (1 - fy) * ((1 - fx) * corner[0] + fx * corner[3]) + fy * ((1 - fx) * above[0] + fx * above[3]);
}

/* The fields at a particle, which is (fx, fy) cells from the low corner of the cell whose values begin at e and b. */
static void gather(const struct vector *e, const struct vector *b, int stride, double fx, double fy,
                   struct vector *e_here, struct vector *b_here)
{
    const struct vector *right = e + 1, *above = e + stride;
    e_here->x = (1 - fy) * e->x + fy * above->x;
    e_here->y = (1 - fx) * e->y + fx * right->y;
    e_here->z = bilinear(&e->z, 3 * stride, fx, fy);
    /* A component that lies half a cell off is met from the cell before in the first half of the cell. */
    int left = fx < 0.5, down = fy < 0.5;
    double hx = fx - 0.5 + left, hy = fy - 0.5 + down;
    b_here->x = bilinear(&b[down ? -stride : 0].x, 3 * stride, fx, hy);
    b_here->y = bilinear(&b[left ? -1 : 0].y, 3 * stride, hx, fy);
    b_here->z = bilinear(&b[(down ? -stride : 0) - left].z, 3 * stride, hx, hy);
}

static void kick(struct vector *u, struct vector e, double impulse)
{
    u->x += impulse * e.x;
    u->y += impulse * e.y;
    u->z += impulse * e.z;
}

/* Boris's rotation about b: `tangent` is tan(angle / 2) per unit of field. */
static void rotate(struct vector *u, struct vector b, double tangent)
{
    struct vector t = {tangent * b.x, tangent * b.y, tangent * b.z};
    double s = 2 / (1 + t.x * t.x + t.y * t.y + t.z * t.z);
    struct vector v = {u->x + u->y * t.z - u->z * t.y, u->y + u->z * t.x - u->x * t.z, u->z + u->x * t.y - u->y * t.x};
    u->x += s * (v.y * t.z - v.z * t.y);
    u->y += s * (v.z * t.x - v.x * t.z);
    u->z += s * (v.x * t.y - v.y * t.x);
}

/* Linear weights of the nodes -1 ... 2 for a position in cells from node 0; it is in -1 ... 2. */
static void linear_weights(double position, double weights[REACH])
{
    for (int node = 0; node < REACH; node++) {
        double distance = fabs(position - (node - 1));
        weights[node] = distance < 1 ? 1 - distance : 0;
    }
}

/*
 * Current of one particle that goes from (x0, y0) to (x1, y1), in cells from the low corner of its cell, in a step.
 * `corner` is the node at -1, -1. `charge` is that of the particle per volume of a cell.
 */
static void deposit_current(const struct grid *grid, struct vector *corner, double charge, double x0, double y0,
                            double x1, double y1, double vz)
{
    double wx[REACH], wy[REACH], change_x[REACH], change_y[REACH];
    linear_weights(x0, wx);
    linear_weights(y0, wy);
    linear_weights(x1, change_x);
    linear_weights(y1, change_y);
    for (int node = 0; node < REACH; node++) {
        change_x[node] -= wx[node];
        change_y[node] -= wy[node];
    }
    double flow = charge * grid->cell / grid->dt;
    int stride = node_stride(grid);
    double along_y[REACH] = {0};
    for (int iy = 0; iy < REACH; iy++) {
        double along_x = 0;
        for (int ix = 0; ix < REACH; ix++) {
            struct vector *j = corner + iy * stride + ix;
            /* Each axis carries off its share of the change in charge; what enters a cell and stays is the change. */
            along_x -= flow * change_x[ix] * (wy[iy] + 0.5 * change_y[iy]);
            along_y[ix] -= flow * change_y[iy] * (wx[ix] + 0.5 * change_x[ix]);
            j->x += along_x;
            j->y += along_y[ix];
            j->z += charge * vz * (wx[ix] * wy[iy] + 0.5 * (change_x[ix] * wy[iy] + wx[ix] * change_y[iy]) +
                                   change_x[ix] * change_y[iy] / 3);
        }
    }
}

/* Moves a coordinate of a cell; answers by how many cells (-1, 0, 1) it has left its own. */
static int move(float *coordinate, double by)
{
    double target = *coordinate + by;
    int cells = (target > 1) - (target < -1);
    *coordinate = (float)(target - 2 * cells);
    return cells;
}

static int wrap(int cell, int cells)
{
    return cell < 1 ? cell + cells : cell > cells ? cell - cells : cell;
}

/* One step of all particles. Those that leave the strip are left in its ghost rows for particles_migrate. */
void push_and_deposit(const struct grid *grid, struct fields *fields, struct particles *particles)
{
    memset(fields->j, 0, node_count(grid) * sizeof *fields->j);
    double impulse = 0.5 * ELECTRON_CHARGE * grid->dt;
    double cells_per_step = 2 * grid->dt / grid->cell; /* times the velocity: a cell is 2 wide in dx, dy and dz */
    double volume = grid->cell * grid->cell * grid->cell;
    int stride = node_stride(grid);
    for (size_t index = 0; index < particles->count; index++) {
        struct particle *p = particles->list + index;
        int ix, iy;
        voxel_cell(grid, p->i, &ix, &iy);
        size_t here = node_index(grid, ix, iy);
        double x0 = 0.5 * (p->dx + 1.0), y0 = 0.5 * (p->dy + 1.0);

        struct vector e, b, u = {p->ux, p->uy, p->uz};
        gather(fields->e + here, fields->b + here, stride, x0, y0, &e, &b);
        kick(&u, e, impulse);
        rotate(&u, b, impulse / lorentz_factor(u));
        kick(&u, e, impulse);
        p->ux = (float)u.x;
        p->uy = (float)u.y;
        p->uz = (float)u.z;

        double rate = cells_per_step / lorentz_factor(u);
        int moved_x = move(&p->dx, rate * u.x), moved_y = move(&p->dy, rate * u.y);
        move(&p->dz, rate * u.z);
        double x1 = moved_x + 0.5 * (p->dx + 1.0), y1 = moved_y + 0.5 * (p->dy + 1.0);
        deposit_current(grid, fields->j + here - stride - 1, ELECTRON_CHARGE * p->w / volume, x0, y0, x1, y1,
                        u.z / lorentz_factor(u));
        p->i = voxel_index(grid, wrap(ix + moved_x, grid->nx), iy + moved_y);
    }
    grid_add_ghosts(grid, fields->j);
}

void center_momenta(const struct grid *grid, const struct fields *fields, const struct particle *from, size_t count,
                    struct particle *to)
{
    double impulse = 0.5 * ELECTRON_CHARGE * grid->dt;
    for (size_t index = 0; index < count; index++) {
        to[index] = from[index];
        struct particle *p = to + index;
        int ix, iy;
        voxel_cell(grid, p->i, &ix, &iy);
        size_t here = node_index(grid, ix, iy);
        struct vector e, b, u = {p->ux, p->uy, p->uz};
        gather(fields->e + here, fields->b + here, node_stride(grid), 0.5 * (p->dx + 1.0), 0.5 * (p->dy + 1.0), &e, &b);
        kick(&u, e, impulse);
        rotate(&u, b, 0.5 * impulse / lorentz_factor(u));
        p->ux = (float)u.x;
        p->uy = (float)u.y;
        p->uz = (float)u.z;
    }
}

/* Kinetic energy in the strip, at the time of the positions. */
double kinetic_energy(const struct grid *grid, const struct fields *fields, const struct particles *particles)
{
    double sum = 0;
    for (size_t index = 0; index < particles->count; index++) {
        struct particle p;
        center_momenta(grid, fields, particles->list + index, 1, &p);
        struct vector u = {p.ux, p.uy, p.uz};
        sum += p.w * (lorentz_factor(u) - 1);
    }
    return sum;
}

void deposit_charge(const struct grid *grid, const struct particles *particles, struct vector *nodes)
{
    memset(nodes, 0, node_count(grid) * sizeof *nodes);
    double volume = grid->cell * grid->cell * grid->cell;
    for (size_t index = 0; index < particles->count; index++) {
        const struct particle *p = particles->list + index;
        int ix, iy;
        voxel_cell(grid, p->i, &ix, &iy);
        double charge = ELECTRON_CHARGE * p->w / volume, fx = 0.5 * (p->dx + 1.0), fy = 0.5 * (p->dy + 1.0);
        struct vector *corner = nodes + node_index(grid, ix, iy), *above = corner + node_stride(grid);
        corner[0].x += charge * (1 - fx) * (1 - fy);
        corner[1].x += charge * fx * (1 - fy);
        above[0].x += charge * (1 - fx) * fy;
        above[1].x += charge * fx * fy;
    }
    grid_add_ghosts(grid, nodes);
}
