/*
 * A small writer of dumps with habits that examples/dump does not have: writer HABIT OUT [EPOCHS].
 *
 * Epochs 1, 2, ... of each rank are OUT/E.<epoch>/rows.<rank>: a header of 8 bytes, then records of a double and a
 * 64-bit number. Compiled with -DWITH_MPI it has ranks, and a few barriers after each epoch.
 *
 * "again" has the last rank write its file of epoch 1 once more in the end, with other records, when the epoch has been
 * indexed for sure; "again-more" has it append them.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#define RECORDS 1000
#define BARRIERS 4
#define BARRIERS_BEFORE_AGAIN 300 /* more than pass without ranks asking each other */

struct record {
    double key;
    uint64_t number;
};

static int rank, ranks = 1;
static const char *folder;
static struct record records[RECORDS];
static const char header[8] = "header";

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "writer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void make_records(int epoch, int kind)
{
    for (uint64_t index = 0; index < RECORDS; index++) {
        uint64_t number = ((uint64_t)epoch * 64 + (uint64_t)rank) * RECORDS + index;
        records[index] = (struct record){(double)(number * 2654435761u % 1000003u) / 1000 + kind, number};
    }
}

static const char *name(char letter, int epoch, const char *file)
{
    static char paths[4][4096];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%c.%d", folder, letter, epoch);
    check(mkdir(path, 0777) == 0 || errno == EEXIST, path);
    snprintf(path + strlen(path), 64, "/%s", file);
    return path;
}

static const char *rows_of(char letter, int epoch, int of_rank)
{
    char file[32];
    snprintf(file, sizeof file, "rows.%d", of_rank);
    return name(letter, epoch, file);
}

static void append(const char *path, const char *mode, int with_header, size_t bytes)
{
    FILE *file = fopen(path, mode);
    check(file != NULL, path);
    check(!with_header || fwrite(header, sizeof header, 1, file) == 1, path);
    check(bytes == 0 || fwrite(records, bytes, 1, file) == 1, path);
    check(fclose(file) == 0, path);
}

static void write_whole(const char *path)
{
    append(path, "w", 1, sizeof records);
}

/* The child writes one half of the parent's file, and a file of its own. */
static void write_with_child(int epoch)
{
    const char *path = rows_of('E', epoch, rank);
    size_t half = sizeof records / 2;
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    check(descriptor >= 0, path);
    check(write(descriptor, header, sizeof header) == sizeof header, path);
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        check(write(descriptor, records, half) == (ssize_t)half, path);
        check(close(descriptor) == 0, path);
        write_whole(rows_of('E', epoch, ranks + rank));
        exit(0);
    }
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "the child");
    check(write(descriptor, (char *)records + half, half) == (ssize_t)half, path);
    check(close(descriptor) == 0, path);
}

static void read_back(const char *path)
{
    static char content[sizeof header + sizeof records + 1];
    FILE *file = fopen(path, "r");
    check(file != NULL, path);
    check(fread(content, 1, sizeof content, file) == sizeof content - 1, "a file has another length");
    check(memcmp(content, header, sizeof header) == 0, "a header is another");
    check(memcmp(content + sizeof header, records, sizeof records) == 0, "records are others");
    check(fclose(file) == 0, path);
}

static void die_in_the_middle(const char *path)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    check(descriptor >= 0 && write(descriptor, header, sizeof header) > 0, path);
    raise(SIGKILL);
}

/* The program ends early, without MPI_Finalize, while others wait for this rank. */
static void leave(const char *habit)
{
#ifdef WITH_MPI
    if (strcmp(habit, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
#else
    (void)habit;
#endif
    exit(3);
}

/* Whether this rank ends so: all of them, the last one, or the first. */
static int leaves(const char *habit)
{
    if (strcmp(habit, "leave-all") == 0)
        return 1;
    int last = strcmp(habit, "leave") == 0 || strcmp(habit, "leave-receiver") == 0 || strcmp(habit, "abort") == 0;
    return (last && rank == ranks - 1) || (strcmp(habit, "leave-first") == 0 && rank == 0);
}

static void write_epoch(const char *habit, int epoch, int last)
{
    const char *path = rows_of('E', epoch, rank);
    if (strcmp(habit, "rename") == 0) {
        const char *before = name('E', epoch, rank % 2 ? "odd" : "temporary");
        write_whole(before);
        check(rename(before, path) == 0, path);
    } else if (strcmp(habit, "move") == 0) {
        write_whole(path);
        check(rename(path, rows_of('H', epoch, rank)) == 0, path);
    } else if (strcmp(habit, "lost-move") == 0) {
        write_whole(path);
        check(rename(path, "/nonexistent/rows.0") != 0, "a folder that should not be there");
    } else if (strcmp(habit, "append") == 0) {
        append(path, "w", 1, 0);
        append(path, "a", 0, sizeof records);
    } else if (strcmp(habit, "empty") == 0) {
        write_whole(path);
        append(rows_of('E', epoch, ranks + rank), "w", 0, 0);
    } else if (strcmp(habit, "exclusive") == 0) {
        append(path, "wx", 1, sizeof records);
        check(fopen(path, "wx") == NULL && errno == EEXIST, "a file could be created twice");
    } else if (strcmp(habit, "no-folder") == 0) {
        char missing[4200];
        snprintf(missing, sizeof missing, "%s/missing/E.%d/rows.0", folder, epoch);
        check(fopen(missing, "w") == NULL && errno == ENOENT, "a folder that should not be there");
        write_whole(path);
    } else if (strcmp(habit, "fork") == 0) {
        write_with_child(epoch);
    } else if (strcmp(habit, "read") == 0) {
        write_whole(path);
        read_back(path);
    } else if (strcmp(habit, "two") == 0) {
        write_whole(path);
        make_records(epoch, 1000000);
        write_whole(rows_of('H', epoch, rank));
    } else if (strcmp(habit, "short") == 0 && epoch == 2 && rank == ranks - 1) {
        append(path, "w", 1, sizeof records - 3);
    } else if (strcmp(habit, "kill") == 0 && epoch == last && rank == ranks - 1) {
        die_in_the_middle(path);
    } else if (epoch == last && leaves(habit)) {
        write_whole(path);
        leave(habit);
    } else {
        write_whole(path);
    }
}

static void meet(const char *habit, int is_last)
{
#ifdef WITH_MPI
    /* The others wait for the rank that has left, in no collective. */
    if (strcmp(habit, "leave-receiver") == 0 && is_last)
        MPI_Recv(NULL, 0, MPI_INT, ranks - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    /* Ranks ask each other for complete epochs now and then only. */
    for (int barrier = 0; barrier < BARRIERS; barrier++) {
        struct timespec moment = {0, 5000000};
        nanosleep(&moment, NULL);
        MPI_Barrier(MPI_COMM_WORLD);
    }
#else
    (void)habit, (void)is_last;
#endif
}

static void write_again(const char *habit)
{
#ifdef WITH_MPI
    for (int barrier = 0; barrier < BARRIERS_BEFORE_AGAIN; barrier++)
        MPI_Barrier(MPI_COMM_WORLD);
#endif
    if (rank != ranks - 1)
        return;
    make_records(1, 5000000);
    if (strcmp(habit, "again-more") == 0)
        append(rows_of('E', 1, rank), "a", 0, sizeof records);
    else
        write_whole(rows_of('E', 1, rank));
}

int main(int count, char **arguments)
{
#ifdef WITH_MPI
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    check(count >= 3, "usage: writer HABIT OUT [EPOCHS]");
    folder = arguments[2];
    int last = count > 3 ? atoi(arguments[3]) : 3;
    check(mkdir(folder, 0777) == 0 || errno == EEXIST, folder);
    for (int epoch = 1; epoch <= last; epoch++) {
        make_records(epoch, 0);
        write_epoch(arguments[1], epoch, last);
        meet(arguments[1], epoch == last);
    }
    if (strncmp(arguments[1], "again", 5) == 0)
        write_again(arguments[1]);
    if (strcmp(arguments[1], "hold") == 0) {
        puts("ready");
        fflush(stdout);
        getchar();
    }
    if (strcmp(arguments[1], "forget") == 0)
        return 3;
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    return 0;
}
