/*
 * The particle-in-cell example: options, the loop over timesteps, and the checks by which the program judges itself.
 *
 * A step takes positions, e and b from time n to n + 1 and momenta from n - 1/2 to n + 1/2 (see pic.h for the scheme).
 *
 * Two laws of physics hold at every moment, and the program ends with EXIT_UNPHYSICAL when one does not:
 *   energy      kinetic + field energy less the work of the antenna stays what it was, within ENERGY_TOLERANCE of the
 *               larger of the two totals. The scheme does not conserve it exactly: the grid heats a plasma of too few
 *               particles.
 *   Gauss's law div E = charge density of electrons and ions at every node, within GAUSS_TOLERANCE of the mean
 *               density. The deposition conserves charge exactly, so only rounding is left.
 *
 * And one of the code: the magnetic field in ghosts is that of the strip they belong to, exactly (see fields.c).
 *
 * Exit status: 0; EXIT_OUTPUT, EXIT_USAGE, EXIT_UNPHYSICAL. The same on every rank.
 */
#define _POSIX_C_SOURCE 200809L /* mkdir, chdir */

#include "output.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENERGY_TOLERANCE 0.01
#define GAUSS_TOLERANCE 1e-9
#define CELL 0.2            /* skin depths */
#define SORT_INTERVAL 25    /* steps */
#define CHECK_INTERVAL 10   /* steps */

enum { EXIT_OUTPUT = 1, EXIT_USAGE = 2, EXIT_UNPHYSICAL = 3 };

struct options {
    int nx, ny, steps, dump_interval;
    double drive, magnetic;
    struct plasma plasma;
    struct output_options output;
    const char *folder;
};

struct energies {
    double kinetic, field, drive_work;
};

static const char USAGE[] =
    "usage: pic --out FOLDER [options]\n"
    "  --grid NX,NY      cells of the box (64,64); at least 2 rows for each rank\n"
    "  --per-cell N      electrons per cell (16)\n"
    "  --steps N         timesteps (400)\n"
    "  --dump N          timesteps between dumps (100)\n"
    "  --seed N          of the plasma (1)\n"
    "  --drive X         amplitude of the antenna's current (0.5; 0 for none)\n"
    "  --magnetic X      uniform magnetic field along z; the electrons gyrate at X (0)\n"
    "  --drift X         momentum of the two beams / (m c) (0.5)\n"
    "  --wave N          a quiet start: cold beams with one weak wave of N wavelengths along x\n"
    "  --plain           records of 32 bytes, without id and origin\n"
    "  --sync            fsync each file\n";

/* A whole number from `least` on; -1 if the text is none. */
static int parse_count(const char *text, const char *end_marks, int least, int *value, const char **rest)
{
    char *end;
    errno = 0;
    long parsed = strtol(text, &end, 10);
    if (errno || end == text || !strchr(end_marks, *end) || parsed < least || parsed > 1000000000)
        return -1;
    *value = (int)parsed;
    if (rest)
        *rest = end;
    return 0;
}

static int parse_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end == text || *end || !isfinite(*value) || *value < 0 ? -1 : 0;
}

static int parse_seed(const char *text, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return errno || end == text || *end ? -1 : 0;
}

static int parse_grid(const char *text, struct options *options)
{
    const char *rest;
    if (parse_count(text, ",", 1, &options->nx, &rest) != 0 || *rest != ',')
        return -1;
    return parse_count(rest + 1, "", 1, &options->ny, NULL);
}

static int parse_options(int count, char **arguments, struct options *options)
{
    static const struct option known[] = {{"grid", required_argument, 0, 'g'},
                                          {"per-cell", required_argument, 0, 'c'},
                                          {"steps", required_argument, 0, 's'},
                                          {"dump", required_argument, 0, 'd'},
                                          {"seed", required_argument, 0, 'r'},
                                          {"drive", required_argument, 0, 'a'},
                                          {"drift", required_argument, 0, 'u'},
                                          {"out", required_argument, 0, 'o'},
                                          {"plain", no_argument, 0, 'p'},
                                          {"sync", no_argument, 0, 'f'},
                                          {"wave", required_argument, 0, 'w'},
                                          {"magnetic", required_argument, 0, 'm'},
                                          {0, 0, 0, 0}};
    *options = (struct options){.nx = 64, .ny = 64, .steps = 400, .dump_interval = 100, .drive = 0.5,
                                .plasma = {.per_cell = 16, .drift = 0.5, .thermal = 0.1, .seed = 1}};
    opterr = 0;
    for (int letter, wrong = 0; (letter = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        switch (letter) {
        case 'g': wrong = parse_grid(optarg, options); break;
        case 'c': wrong = parse_count(optarg, "", 1, &options->plasma.per_cell, NULL); break;
        case 's': wrong = parse_count(optarg, "", 0, &options->steps, NULL); break;
        case 'd': wrong = parse_count(optarg, "", 1, &options->dump_interval, NULL); break;
        case 'r': wrong = parse_seed(optarg, &options->plasma.seed); break;
        case 'a': wrong = parse_number(optarg, &options->drive); break;
        case 'm': wrong = parse_number(optarg, &options->magnetic); break;
        case 'w': wrong = parse_count(optarg, "", 1, &options->plasma.wave, NULL); break;
        case 'u': wrong = parse_number(optarg, &options->plasma.drift); break;
        case 'o': options->folder = optarg; break;
        case 'p': options->output.plain = 1; break;
        case 'f': options->output.sync = 1; break;
        default: wrong = -1;
        }
        if (wrong)
            return -1;
    }
    return optind == count && options->folder ? 0 : -1;
}

/* Whether any rank has failed; on all ranks. */
static int any_failed(int status)
{
    int failed = status != 0, any;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return any;
}

static struct energies measure_energies(const struct simulation *simulation)
{
    double local[3] = {kinetic_energy(&simulation->grid, &simulation->fields, &simulation->particles),
                       fields_energy(&simulation->grid, &simulation->fields), simulation->fields.drive_work};
    double sum[3];
    MPI_Allreduce(local, sum, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return (struct energies){sum[0], sum[1], sum[2]};
}

/* How far energy is from being conserved, relative to the larger of what there was and what there is. */
static double energy_error(const struct energies *first, const struct energies *now)
{
    double began = first->kinetic + first->field, total = now->kinetic + now->field;
    return fabs(total - now->drive_work - began) / fmax(began, total);
}

/* The largest |div E - charge density| of all nodes. */
static double gauss_error(const struct simulation *simulation)
{
    const struct grid *grid = &simulation->grid;
    struct vector *charge = allocate(node_count(grid), sizeof *charge);
    deposit_charge(grid, &simulation->particles, charge);
    double largest = 0, over_ranks;
    for (int iy = 1; iy <= grid->ny; iy++)
        for (int ix = 1; ix <= grid->nx; ix++) {
            size_t here = node_index(grid, ix, iy);
            const struct vector *e = simulation->fields.e + here;
            double divergence = (e->x - (e - 1)->x + e->y - (e - node_stride(grid))->y) / grid->cell;
            double ions = -simulation->fields.initial_charge[here].x;
            largest = fmax(largest, fabs(divergence - charge[here].x - ions));
        }
    free(charge);
    MPI_Allreduce(&largest, &over_ranks, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return over_ranks;
}

static void advance(struct simulation *simulation)
{
    struct grid *grid = &simulation->grid;
    push_and_deposit(grid, &simulation->fields, &simulation->particles);
    particles_migrate(grid, &simulation->particles);
    fields_advance_magnetic_half(grid, &simulation->fields);
    fields_advance_electric(grid, &simulation->fields, simulation->step);
    fields_advance_magnetic_half(grid, &simulation->fields);
    simulation->step++;
    if (simulation->step % SORT_INTERVAL == 0)
        particles_sort(grid, &simulation->particles);
}

/* Dumps, and adds the seconds it took. The reduction counts: an output that waits in it, as an index closing an epoch
 * does, is part of what the output costs. */
static int dump(struct output *output, const struct simulation *simulation, double *seconds)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    int failed = any_failed(output_dump(output, simulation));
    *seconds += MPI_Wtime() - began;
    return failed;
}

/* Every rank enters the folder, which need not be there yet. */
static int enter_folder(const char *folder)
{
    if ((mkdir(folder, 0777) != 0 && errno != EEXIST) || chdir(folder) != 0) {
        fprintf(stderr, "pic: cannot enter the folder %s: %s\n", folder, strerror(errno));
        return -1;
    }
    return 0;
}

struct figures {
    struct energies first, last;
    double energy_error, gauss_error, ghost_error, output_s, wall_s;
    long long particles;
    int dumps;
};

/* All timesteps, with dumps and checks. EXIT_OUTPUT when a rank could not write. */
static int run(struct simulation *simulation, const struct options *options, struct figures *figures)
{
    struct output *output;
    double began = MPI_Wtime();
    int status = any_failed(output_open(&options->output, &output)) ? EXIT_OUTPUT : 0;
    figures->first = figures->last = measure_energies(simulation);
    while (simulation->step < options->steps && !status) {
        advance(simulation);
        int dumps_now = simulation->step % options->dump_interval == 0;
        if (dumps_now || simulation->step % CHECK_INTERVAL == 0 || simulation->step == options->steps) {
            figures->last = measure_energies(simulation);
            figures->energy_error = fmax(figures->energy_error, energy_error(&figures->first, &figures->last));
        }
        if (dumps_now) {
            status = dump(output, simulation, &figures->output_s) ? EXIT_OUTPUT : 0;
            figures->dumps++;
        }
    }
    double closing = MPI_Wtime();
    if (any_failed(output_close(output)))
        status = EXIT_OUTPUT;
    figures->output_s += MPI_Wtime() - closing;
    figures->wall_s = MPI_Wtime() - began;
    figures->gauss_error = gauss_error(simulation);
    double ghost_error = fields_ghost_error(&simulation->grid, &simulation->fields);
    MPI_Allreduce(&ghost_error, &figures->ghost_error, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return status;
}

/* One line of JSON, from rank 0. */
static void print_figures(const struct simulation *simulation, const struct options *options, struct figures *figures)
{
    double local[2] = {figures->output_s, figures->wall_s}, longest[2];
    long long held = (long long)simulation->particles.count;
    MPI_Reduce(local, longest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&held, &figures->particles, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (simulation->grid.rank != 0)
        return;
    printf("{\"output\": \"%s\", \"sync\": %s, \"ranks\": %d, \"particles\": %lld, \"steps\": %d, \"dumps\": %d, ",
           output_kind, options->output.sync ? "true" : "false", simulation->grid.ranks, figures->particles,
           simulation->step, figures->dumps);
    printf("\"output_s\": %.6f, \"wall_s\": %.6f, \"kinetic_first\": %.9g, \"kinetic_last\": %.9g, ", longest[0],
           longest[1], figures->first.kinetic, figures->last.kinetic);
    printf("\"field_last\": %.9g, \"drive_work\": %.9g, \"energy_error\": %.3g, \"energy_tolerance\": %g, ",
           figures->last.field, figures->last.drive_work, figures->energy_error, ENERGY_TOLERANCE);
    printf("\"gauss_error\": %.3g, \"gauss_tolerance\": %g, \"ghost_error\": %.3g}\n", figures->gauss_error,
           GAUSS_TOLERANCE, figures->ghost_error);
}

/* Whether all laws held. Figures that are not numbers break them. */
static int lawful(const struct figures *figures)
{
    return figures->energy_error <= ENERGY_TOLERANCE && figures->gauss_error <= GAUSS_TOLERANCE &&
           figures->ghost_error == 0;
}

static int simulate(const struct options *options)
{
    struct simulation simulation = {.step = 0};
    struct figures figures = {.energy_error = 0};
    struct grid *grid = &simulation.grid;
    if (grid_init(grid, options->nx, options->ny, CELL) != 0) {
        if (grid->rank == 0)
            fprintf(stderr, "pic: a box of %d by %d cells is too small for %d ranks\n", options->nx, options->ny,
                    grid->ranks);
        return EXIT_USAGE;
    }
    if (any_failed(enter_folder(options->folder)))
        return EXIT_OUTPUT;
    fields_init(grid, &simulation.fields, options->drive, options->magnetic);
    particles_load(grid, &simulation.particles, &options->plasma);
    deposit_charge(grid, &simulation.particles, simulation.fields.initial_charge);
    int status = run(&simulation, options, &figures);
    if (!status) {
        print_figures(&simulation, options, &figures);
        if (!lawful(&figures)) {
            if (grid->rank == 0)
                fprintf(stderr, "pic: energy or charge is not conserved within its tolerance, or ghosts are wrong\n");
            status = EXIT_UNPHYSICAL;
        }
    }
    fields_free(&simulation.fields);
    particles_free(&simulation.particles);
    return status;
}

int main(int count, char **arguments)
{
    struct options options;
    MPI_Init(&count, &arguments);
    int rank, status = EXIT_USAGE;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (parse_options(count, arguments, &options) == 0)
        status = simulate(&options);
    else if (rank == 0)
        fputs(USAGE, stderr);
    MPI_Finalize();
    return status;
}
