/*
 * The output phase: one interface, two implementations. The build chooses: output_files.c writes particle dumps as
 * VPIC does, output_turbidite.c hands the same particles to Turbidite.
 *
 * The program's folder is the output folder by then; all paths are below it.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "pic.h"

#define OUTPUT_BUFFER_PARTICLES 32768 /* the most that are centred and written at once, in one static buffer */

struct output;

struct output_options {
    int plain; /* VPIC's 32 bytes only, without the id and the origin */
    int sync;  /* have the files on storage before a dump ends; Turbidite always does */
};

/* The kind of output that this build writes, for the line of results. */
extern const char output_kind[];

/* All are collective; each answers 0, or -1 when this rank has failed and has said why on standard error. output_close
 * is called whatever output_open and output_dump answered. */
int output_open(const struct output_options *options, struct output **output);
int output_dump(struct output *output, const struct simulation *simulation);
int output_close(struct output *output);

#endif
