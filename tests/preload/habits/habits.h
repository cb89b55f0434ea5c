/*
 * Programs that write dump files in every way that Linux offers: habits NAME FOLDER EPOCHS, or habits random SEED FOLDER
 * EPOCHS. `habits list` prints the names.
 *
 * Epochs 1, 2, ... of each rank are FOLDER/E.<epoch>/rows.<rank>, and FOLDER/E.<epoch>/rows if ranks share a file: a header
 * of 8 bytes, then records of a double and a 64-bit number. The number names epoch, rank and position of its record, and
 * the double follows from it. Epoch 2 is as large as eight others, so that it exceeds a small spool.
 */
#ifndef HABITS_H
#define HABITS_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define HEADER "HABITS01"
#define HEADER_BYTES 8
/* The exit status of a program that went on although an earlier file was gone. */
#define MISSED 4

struct record {
    double key;
    uint64_t number;
};

/* `epoch` writes the rank's part of an epoch. */
struct habit {
    const char *name;
    void (*epoch)(int epoch);
};

extern const struct habit STREAMS[], STREAM_LIVES[], DESCRIPTORS[], TRANSFERS[], MAPPINGS[], NAMES[], FOLDERS[], INQUIRIES[],
    PROCESSES[], FORKS[], ENDINGS[], SHARES[];

extern int rank, ranks, last_epoch, missed;
extern const char *folder;
/* The records of the epoch that is being written, and their size. */
extern struct record *records;
extern size_t count, bytes;

#define CHECK(condition) check(!!(condition), #condition, __FILE__, __LINE__)
void check(int good, const char *condition, const char *file, int line);

/* Fills `records` with the records of a rank. Versions differ in each record. */
void fill(int epoch, int of_rank, int version);
/* Returns a path below the folder, which is kept for some calls. */
const char *in_folder(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns FOLDER/E.<epoch>/rows.<rank><suffix>, and creates its folder. */
const char *path_of(int epoch, const char *suffix);
const char *path_of_rank(int epoch, int of_rank, const char *suffix);

int create(const char *path);
void write_all(int descriptor, const void *data, size_t size);
void write_header(int descriptor);
void write_records(int descriptor);
void write_content(int descriptor);
/* Writes a whole file through a stream. */
void write_file(const char *path);
void print_content(FILE *stream);
/* Returns a descriptor of a file outside of the epochs that holds the records, at its beginning. */
int input_of_records(void);
const char *input_path(void);
void wait_for(pid_t child);
void run_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Passes some collective calls, in which epochs may be indexed. */
void meet(void);
/* Passes one collective call. */
void meet_once(void);
void finish(void);

void write_at_random(uint64_t seed, int epoch);

#endif
