/*
 * Particle files as programs write them for DeltaFS (Zheng et al. 2018): in each step every rank writes one file per
 * particle with one fopen, one fwrite and one fclose. The file's name is the particle's id, its content the record.
 *
 * The particles come from a folder of real dumps, dealt out over the ranks; the id hides in the weight (see the data's
 * README).
 */
#define _POSIX_C_SOURCE 200809L /* mkdir */

#include "ranks.h"
#include "source.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BUFFER_RECORDS 4096
#define WEIGHT_OFFSET 28
#define FIRST_WEIGHT_BITS 0x3d124925 /* of float32(8192 / 229376), the weight of particle 0 */

struct options {
    const char *source, *folder, *steps;
    int most; /* particles per rank and step */
};

static const char USAGE[] =
    "usage: particle_files SOURCE OUT [--steps A,B,...] [--most N]\n"
    "  writes OUT/T.<step>/<id> for every particle; with --most for the first N of each rank and step\n";

static int complain(const char *what, const char *path)
{
    fprintf(stderr, "particle_files: cannot %s %s: %s\n", what, path, strerror(errno));
    return -1;
}

static int write_particle(const struct options *options, int step, const unsigned char *record)
{
    char path[PATH_BYTES];
    int32_t weight_bits;
    memcpy(&weight_bits, record + WEIGHT_OFFSET, sizeof weight_bits);
    snprintf(path, sizeof path, "%s/T.%d/%d", options->folder, step, weight_bits - FIRST_WEIGHT_BITS);
    FILE *file = fopen(path, "w");
    if (!file)
        return complain("open", path);
    int failed = fwrite(record, RECORD_BYTES, 1, file) != 1 && complain("write", path) != 0;
    if (fclose(file) != 0)
        failed = complain("close", path) != 0;
    return failed ? -1 : 0;
}

static int write_step(const struct options *options, int step, int rank, int ranks)
{
    static struct piece piece; /* too large for the stack */
    static unsigned char buffer[BUFFER_RECORDS * RECORD_BYTES];
    char path[PATH_BYTES];
    if (piece_open(&piece, options->source, step, rank, ranks) != 0)
        return -1;
    if (piece.end - piece.next > options->most)
        piece.end = piece.next + options->most;
    snprintf(path, sizeof path, "%s/T.%d", options->folder, step);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return complain("make the folder", path);
    int count;
    while ((count = piece_read(&piece, buffer, BUFFER_RECORDS)) > 0)
        for (int index = 0; index < count; index++)
            if (write_particle(options, step, buffer + (size_t)index * RECORD_BYTES) != 0)
                return -1;
    return count;
}

static int parse_options(int count, char **arguments, struct options *options)
{
    static const struct option known[] = {
        {"steps", required_argument, 0, 's'}, {"most", required_argument, 0, 'm'}, {0, 0, 0, 0}};
    *options = (struct options){.most = INT32_MAX};
    opterr = 0;
    for (int letter; (letter = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        char *end = NULL;
        if (letter == 's') {
            options->steps = optarg;
        } else if (letter == 'm') {
            long most = strtol(optarg, &end, 10);
            if (end == optarg || *end || most < 0 || most > INT32_MAX)
                return -1;
            options->most = (int)most;
        } else {
            return -1;
        }
    }
    if (count - optind != 2)
        return -1;
    options->source = arguments[optind];
    options->folder = arguments[optind + 1];
    return 0;
}

int main(int count, char **arguments)
{
    int rank, ranks, failed = 0;
    struct options options;
    struct steps steps;
    ranks_begin(&count, &arguments, &rank, &ranks);
    if (parse_options(count, arguments, &options) != 0) {
        if (rank == 0)
            fputs(USAGE, stderr);
        ranks_end();
        return 2;
    }
    if (mkdir(options.folder, 0777) != 0 && errno != EEXIST)
        failed = complain("make the folder", options.folder) != 0;
    failed = ranks_any(failed || steps_find(options.source, options.steps, &steps) != 0);
    for (int index = 0; !failed && index < steps.count; index++)
        failed = ranks_any(write_step(&options, steps.list[index], rank, ranks) != 0);
    ranks_end();
    return failed ? 1 : 0;
}
