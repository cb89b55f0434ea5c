/*
 * Reads a folder of real particle dumps (T.<step>/eparticle.<step>.<rank>) and deals each step's particles out over
 * ranks: the files of a step in the order of their ranks, cut into as many even pieces as there are ranks now.
 *
 * A rank reads its piece in parts of any size and never holds more than the caller's buffer.
 */
#ifndef SOURCE_H
#define SOURCE_H

#include "../vpic/vpic_header.h"

#include <stdint.h>
#include <stdio.h>

#define STEPS_MOST 1024
#define SOURCE_FILES_MOST 1024
#define RECORD_BYTES 32
#define PATH_BYTES 4096

struct steps {
    int list[STEPS_MOST]; /* ascending */
    int count;
};

/* The steps in the folder; with `wanted`, such as "500,1500", those of them. -1, and said why, if one is not there. */
int steps_find(const char *folder, const char *wanted, struct steps *steps);

/* A rank's piece of a step. */
struct piece {
    const char *folder;
    int step, files;
    int64_t ends[SOURCE_FILES_MOST]; /* records in the step's files up to the end of each */
    int64_t next, end;               /* records of the step that are still to be read */
    struct vpic_header header;       /* of the file in which the piece begins */
};

/* All answer -1 on failure and say why on standard error. */
int piece_open(struct piece *piece, const char *folder, int step, int rank, int ranks);
/* Reads up to `most` records; answers how many, 0 at the piece's end. */
int piece_read(struct piece *piece, unsigned char *records, int most);

#endif
