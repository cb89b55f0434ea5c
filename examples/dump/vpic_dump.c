/*
 * The smallest program that writes particle dumps the way VPIC does, with real particles, for tests of interception.
 *
 * It deals the particles of each step in a folder of real dumps out over its own ranks and writes them as
 * particle/T.<step>/eparticle.<step>.<rank> in the output folder: mkdir by every rank, fopen, 32 header fwrites,
 * fwrites of records from one static buffer that is reused, fclose. Options change with which calls, when, and in what
 * order of ranks. There may be more species, as particle/T.<step>/<species>particle.<step>.<rank>: each has the source's
 * particles with slower momenta.
 *
 * Invariant: the bytes of each file are the same in the end whatever the options are. The header's grid is that of the
 * source file in which a rank's piece begins; a piece that runs on into the next file keeps it.
 */
#define _DEFAULT_SOURCE         /* writev */
#define _POSIX_C_SOURCE 200809L /* open, pwrite, mkdir, chdir, getopt */

#include "ranks.h"
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define BUFFER_RECORDS 32768
#define REDUCTIONS 300  /* between two steps, with --allreduce */
#define VECTOR_PIECES 4 /* pieces per writev */
#define SPECIES_MOST 8
#define MOMENTUM_OFFSET 16 /* of ux, uy and uz in a record */

enum calls { CALLS_STDIO, CALLS_FPRINTF_HEADER, CALLS_WRITE, CALLS_WRITEV, CALLS_PWRITE };
enum between { BETWEEN_NOTHING, BETWEEN_BARRIER, BETWEEN_REDUCTIONS };

struct options {
    const char *source, *folder, *steps;
    enum calls calls;
    enum between between;
    int turns, groups, leave_open;
    int late_rank; /* -1: none */
    char *species[SPECIES_MOST];
    int species_count;
    const char *twice; /* the species that is dumped twice in a step */
    int apart;         /* reductions between the two */
};

/* One dump of a species in a step. */
struct dumped {
    const char *species;
    int number;      /* among the species; 0 has the source's particles as they are */
    int preliminary; /* it is dumped once more, with what it should have */
    int leave_open;
};

/* Odd sizes, so that headers and records are cut anywhere: inside a field, at a record's end, many records at once. */
static const size_t PIECE_BYTES[] = {1, 113, 5, 31, 4096, 33, 65521, 7, 300007};
#define PIECES (sizeof PIECE_BYTES / sizeof PIECE_BYTES[0])

static const char USAGE[] =
    "usage: vpic_dump SOURCE OUT [options]\n"
    "  --steps A,B,...    steps of the source (all)\n"
    "  --stdio            fwrite for the header's fields and for records (default)\n"
    "  --fprintf-header   the same, but the header's bytes by fprintf\n"
    "  --posix            open, write in odd pieces, close\n"
    "  --writev           open, writev of odd pieces, close\n"
    "  --pwrite           open, pwrite in odd pieces, close\n"
    "  --turns            one rank at a time, passing a token point to point\n"
    "  --stagger K        ranks in K groups, with a barrier after each group\n"
    "  --barrier          a barrier after each step\n"
    "  --allreduce        some hundred small reductions after each step\n"
    "  --leave-open       the last step's file is never closed\n"
    "  --late-rank R      rank R writes no file at all\n"
    "  --species A,B,...  species, as T.<step>/Aparticle.<step>.<rank> (e); all but the first have slower particles\n"
    "  --twice A          species A is dumped twice in each step, first with other and fewer particles\n"
    "  --apart            the same, with some hundred small reductions between the two\n";

/* The header's place and the records after it lie together, so that one write can cover both. */
static unsigned char buffer[VPIC_HEADER_BYTES + BUFFER_RECORDS * RECORD_BYTES];
static unsigned char *const records = buffer + VPIC_HEADER_BYTES;

static int complain(const char *what, const char *path)
{
    fprintf(stderr, "vpic_dump: cannot %s %s: %s\n", what, path, strerror(errno));
    return -1;
}

/* With fprintf five bytes at a time, which 115 is a multiple of: compilers make a single one an fputc. */
static int put_header(FILE *file, enum calls calls)
{
    if (calls == CALLS_FPRINTF_HEADER) {
        for (const unsigned char *five = buffer; five < buffer + VPIC_HEADER_BYTES; five += 5)
            if (fprintf(file, "%c%c%c%c%c", five[0], five[1], five[2], five[3], five[4]) != 5)
                return -1;
        return 0;
    }
    const unsigned char *field = buffer;
    for (int index = 0; index < VPIC_HEADER_FIELDS; index++) {
        if (fwrite(field, vpic_header_field_bytes[index], 1, file) != 1)
            return -1;
        field += vpic_header_field_bytes[index];
    }
    return 0;
}

/* Reads records of a species: the source's, with momenta of its own. */
static int next_records(struct piece *piece, const struct dumped *dumped)
{
    int count = piece_read(piece, records, BUFFER_RECORDS);
    float factor = (dumped->preliminary ? -1.0f : 1.0f) / (float)(1 + 4 * dumped->number);
    for (int index = 0; factor != 1.0f && index < count; index++) {
        float momentum[3];
        unsigned char *place = records + (size_t)index * RECORD_BYTES + MOMENTUM_OFFSET;
        memcpy(momentum, place, sizeof momentum);
        for (int axis = 0; axis < 3; axis++)
            momentum[axis] *= factor;
        memcpy(place, momentum, sizeof momentum);
    }
    return count;
}

/* Writes a file with stdio. */
static int dump_stdio(struct piece *piece, const char *path, enum calls calls, const struct dumped *dumped)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return complain("open", path);
    int count = 0, failed = put_header(file, calls) != 0;
    while (!failed && (count = next_records(piece, dumped)) > 0)
        failed = fwrite(records, RECORD_BYTES, (size_t)count, file) != (size_t)count;
    if (failed)
        complain("write", path);
    if (!dumped->leave_open && fclose(file) != 0)
        failed = complain("close", path) != 0;
    return failed || count < 0 ? -1 : 0;
}

struct posix_file {
    int descriptor;
    enum calls calls;
    off_t offset;
    size_t next_piece; /* index into PIECE_BYTES */
};

/* Offers the bytes in one call; answers how many were taken. */
static ssize_t put_once(struct posix_file *file, const unsigned char *bytes, size_t count)
{
    struct iovec pieces[VECTOR_PIECES];
    int used = 0;
    size_t offered = 0;
    int most = file->calls == CALLS_WRITEV ? VECTOR_PIECES : 1;
    for (; used < most && offered < count; used++) {
        size_t wanted = PIECE_BYTES[file->next_piece++ % PIECES];
        size_t piece = wanted < count - offered ? wanted : count - offered;
        pieces[used] = (struct iovec){(void *)(bytes + offered), piece};
        offered += piece;
    }
    if (file->calls == CALLS_WRITEV)
        return writev(file->descriptor, pieces, used);
    if (file->calls == CALLS_PWRITE)
        return pwrite(file->descriptor, bytes, offered, file->offset);
    return write(file->descriptor, bytes, offered);
}

/* Writes all bytes; a call may take fewer than it was offered. */
static int put_all(struct posix_file *file, const unsigned char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t taken = put_once(file, bytes, count);
        if (taken < 0 && errno == EINTR)
            continue;
        if (taken <= 0)
            return -1;
        bytes += taken;
        count -= (size_t)taken;
        file->offset += taken;
    }
    return 0;
}

/* Writes a file with the system's calls; the first records go along with the header. */
static int dump_posix(struct piece *piece, const char *path, enum calls calls, const struct dumped *dumped)
{
    struct posix_file file = {.descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), .calls = calls};
    if (file.descriptor < 0)
        return complain("open", path);
    int failed = 0, count = next_records(piece, dumped);
    if (count >= 0)
        failed = put_all(&file, buffer, VPIC_HEADER_BYTES + (size_t)count * RECORD_BYTES) != 0;
    while (!failed && count > 0 && (count = next_records(piece, dumped)) > 0)
        failed = put_all(&file, records, (size_t)count * RECORD_BYTES) != 0;
    if (failed)
        complain("write", path);
    if (!dumped->leave_open && close(file.descriptor) != 0)
        failed = complain("close", path) != 0;
    return failed || count < 0 ? -1 : 0;
}

/* One species' file of this rank in a step. */
static int dump(const struct options *options, int step, int rank, int ranks, const struct dumped *dumped)
{
    static struct piece piece; /* too large for the stack */
    char path[PATH_BYTES];
    if (rank == options->late_rank)
        return 0;
    if (piece_open(&piece, options->source, step, rank, ranks) != 0)
        return -1;
    if (dumped->preliminary)
        piece.end -= (piece.end - piece.next) / 2;
    struct vpic_header header = piece.header;
    header.rank = rank;
    header.ranks = ranks;
    header.species += dumped->number;
    header.count = (int32_t)(piece.end - piece.next);
    vpic_header_pack(&header, buffer);
    snprintf(path, sizeof path, "particle/T.%d", step);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return complain("make the folder", path);
    snprintf(path, sizeof path, "particle/T.%d/%sparticle.%d.%d", step, dumped->species, step, rank);
    if (options->calls == CALLS_STDIO || options->calls == CALLS_FPRINTF_HEADER)
        return dump_stdio(&piece, path, options->calls, dumped);
    return dump_posix(&piece, path, options->calls, dumped);
}

/* All files of this rank in a step. */
static int dump_species(const struct options *options, int step, int rank, int ranks, int leave_open)
{
    int status = 0;
    for (int number = 0; number < options->species_count; number++) {
        struct dumped dumped = {.species = options->species[number], .number = number};
        if (options->twice && strcmp(options->twice, dumped.species) == 0) {
            dumped.preliminary = 1;
            status |= dump(options, step, rank, ranks, &dumped);
            dumped.preliminary = 0;
            if (options->apart)
                ranks_reduce_often(REDUCTIONS);
        }
        dumped.leave_open = leave_open;
        status |= dump(options, step, rank, ranks, &dumped);
    }
    return status;
}

/* One step: when this rank dumps among the others, and what follows. A rank that fails goes on with the others. */
static int take_step(const struct options *options, int step, int rank, int ranks, int leave_open)
{
    int status = 0;
    if (options->turns) {
        ranks_await_turn(rank);
        status = dump_species(options, step, rank, ranks, leave_open);
        ranks_pass_turn(rank, ranks);
    } else {
        for (int group = 0; group < options->groups; group++) {
            if (rank % options->groups == group)
                status = dump_species(options, step, rank, ranks, leave_open);
            if (options->groups > 1)
                ranks_barrier();
        }
    }
    if (options->between == BETWEEN_BARRIER)
        ranks_barrier();
    else if (options->between == BETWEEN_REDUCTIONS)
        ranks_reduce_often(REDUCTIONS);
    return status;
}

static int parse_count(const char *text, int least, int *value)
{
    char *end;
    errno = 0;
    long parsed = strtol(text, &end, 10);
    *value = (int)parsed;
    return errno || end == text || *end || parsed < least || parsed > 1000000 ? -1 : 0;
}

/* Splits a list of species in its place; -1 if it is none. */
static int parse_species(char *text, struct options *options)
{
    options->species_count = 0;
    for (char *name = text; name; options->species_count++) {
        char *comma = strchr(name, ',');
        if (comma)
            *comma++ = '\0';
        if (!*name || strchr(name, '/') || strlen(name) > 64 || options->species_count == SPECIES_MOST)
            return -1;
        options->species[options->species_count] = name;
        name = comma;
    }
    return 0;
}

/* Whether the options go together. A collective between two dumps needs all ranks to dump at once. */
static int fit_together(const struct options *options)
{
    int known = !options->twice, one_by_one = options->turns || options->groups > 1;
    for (int number = 0; number < options->species_count; number++)
        known |= options->twice && strcmp(options->twice, options->species[number]) == 0;
    return known && !(options->turns && options->groups > 1) &&
           !(options->apart && (!options->twice || one_by_one));
}

static int parse_options(int count, char **arguments, struct options *options)
{
    static const struct option known[] = {{"steps", required_argument, 0, 's'},
                                          {"stdio", no_argument, 0, 'i'},
                                          {"fprintf-header", no_argument, 0, 'f'},
                                          {"posix", no_argument, 0, 'p'},
                                          {"writev", no_argument, 0, 'v'},
                                          {"pwrite", no_argument, 0, 'w'},
                                          {"turns", no_argument, 0, 't'},
                                          {"barrier", no_argument, 0, 'b'},
                                          {"stagger", required_argument, 0, 'g'},
                                          {"allreduce", no_argument, 0, 'a'},
                                          {"leave-open", no_argument, 0, 'o'},
                                          {"late-rank", required_argument, 0, 'l'},
                                          {"species", required_argument, 0, 'n'},
                                          {"twice", required_argument, 0, 'd'},
                                          {"apart", no_argument, 0, 'm'},
                                          {0, 0, 0, 0}};
    static char electrons[] = "e";
    *options = (struct options){.groups = 1, .late_rank = -1, .species = {electrons}, .species_count = 1};
    opterr = 0;
    for (int letter, wrong = 0; (letter = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        switch (letter) {
        case 's': options->steps = optarg; break;
        case 'i': options->calls = CALLS_STDIO; break;
        case 'f': options->calls = CALLS_FPRINTF_HEADER; break;
        case 'p': options->calls = CALLS_WRITE; break;
        case 'v': options->calls = CALLS_WRITEV; break;
        case 'w': options->calls = CALLS_PWRITE; break;
        case 't': options->turns = 1; break;
        case 'b': options->between = BETWEEN_BARRIER; break;
        case 'a': options->between = BETWEEN_REDUCTIONS; break;
        case 'g': wrong = parse_count(optarg, 1, &options->groups); break;
        case 'o': options->leave_open = 1; break;
        case 'l': wrong = parse_count(optarg, 0, &options->late_rank); break;
        case 'n': wrong = parse_species(optarg, options); break;
        case 'd': options->twice = optarg; break;
        case 'm': options->apart = 1; break;
        default: wrong = -1;
        }
        if (wrong)
            return -1;
    }
    if (count - optind != 2 || !fit_together(options))
        return -1;
    options->source = arguments[optind];
    options->folder = arguments[optind + 1];
    return 0;
}

/* Enters the output folder; the source's path is made independent of it first. */
static int enter_folder(struct options *options)
{
    static char absolute[PATH_BYTES];
    if (!realpath(options->source, absolute))
        return complain("find", options->source);
    options->source = absolute;
    if ((mkdir(options->folder, 0777) != 0 && errno != EEXIST) || chdir(options->folder) != 0)
        return complain("enter the folder", options->folder);
    return mkdir("particle", 0700) == 0 || errno == EEXIST ? 0 : complain("make the folder", "particle");
}

int main(int count, char **arguments)
{
    int rank, ranks, status = 0;
    struct options options;
    struct steps steps;
    ranks_begin(&count, &arguments, &rank, &ranks);
    if (parse_options(count, arguments, &options) != 0) {
        if (rank == 0)
            fputs(USAGE, stderr);
        ranks_end();
        return 2;
    }
    if (ranks_any(enter_folder(&options) != 0 || steps_find(options.source, options.steps, &steps) != 0)) {
        ranks_end();
        return 1;
    }
    for (int index = 0; index < steps.count; index++) {
        int leave_open = options.leave_open && index + 1 == steps.count;
        if (take_step(&options, steps.list[index], rank, ranks, leave_open) != 0)
            status = 1;
    }
    ranks_end();
    return status;
}
