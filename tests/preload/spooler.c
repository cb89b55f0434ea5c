/*
 * Writes files that may not fit where they are spooled: spooler HABIT OUT FILES RECORDS [EPOCHS].
 *
 * OUT/E.<epoch>/rows.<file>, all files of an epoch open at once: a header of 8 bytes, then records of a double and a 64-bit
 * number. Every call is checked. When one fails the program says "<file> <bytes taken> <error>" and ends with 3, since what it
 * was told of that it has written it may believe in.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK_RECORDS 2048
#define THREADS 4
#define MAX_FILES 16

struct record {
    double key;
    uint64_t number;
};

static const char header[8] = "header";
static const char *habit, *folder;
static size_t records;
static char *content[MAX_FILES];
static size_t bytes;

static int is(const char *name)
{
    return strcmp(habit, name) == 0;
}

static void fail(int file, size_t taken)
{
    printf("%d %zu %s\n", file, taken, strerrorname_np(errno));
    exit(3);
}

static void check(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(1);
}

static void make_content(int epoch, int file)
{
    memcpy(content[file], header, sizeof header);
    struct record *rows = (struct record *)(content[file] + sizeof header);
    for (size_t index = 0; index < records; index++) {
        uint64_t number = ((uint64_t)epoch * MAX_FILES + (uint64_t)file) * 1000000 + index;
        rows[index] = (struct record){(double)(number * 2654435761u % 1000003u) / 1000, number};
    }
}

static const char *path_of(int epoch, int file)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/E.%d", folder, epoch);
    check(mkdir(path, 0777) == 0 || errno == EEXIST, path);
    snprintf(path + strlen(path), 32, "/rows.%d", file);
    return path;
}

/* ---- streams: a chunk at a time, each file in turn ---- */

static int put(FILE *stream, const char *from, size_t count)
{
    if (is("fputc")) {
        for (size_t index = 0; index < count; index++)
            if (fputc((unsigned char)from[index], stream) == EOF)
                return 0;
        return 1;
    }
    if (is("putc_unlocked")) {
        for (size_t index = 0; index < count; index++)
            if (putc_unlocked((unsigned char)from[index], stream) == EOF)
                return 0;
        return 1;
    }
    if (is("fprintf")) {
        size_t index = 0;
        for (; index + 4 <= count; index += 4)
            if (fprintf(stream, "%c%c%c%c", from[index], from[index + 1], from[index + 2], from[index + 3]) != 4)
                return 0;
        return fwrite(from + index, 1, count - index, stream) == count - index;
    }
    if (is("fwrite-small")) {
        for (size_t index = 0; index < count; index += 8)
            if (fwrite(from + index, count - index < 8 ? count - index : 8, 1, stream) != 1)
                return 0;
        return 1;
    }
    return fwrite(from, 1, count, stream) == count;
}

static void write_streams(int epoch, int files)
{
    FILE *streams[MAX_FILES];
    for (int file = 0; file < files; file++)
        if ((streams[file] = fopen(path_of(epoch, file), "w")) == NULL)
            fail(file, 0);
    size_t chunk = CHUNK_RECORDS * sizeof(struct record);
    for (size_t at = 0; at < bytes; at += chunk)
        for (int file = 0; file < files; file++) {
            size_t count = bytes - at < chunk ? bytes - at : chunk;
            if (!put(streams[file], content[file] + at, count) || (is("fflush") && fflush(streams[file]) != 0))
                fail(file, 0);
            if (is("seek") && (fseek(streams[file], 0, SEEK_SET) != 0 || fwrite(header, 8, 1, streams[file]) != 1 ||
                               fseek(streams[file], 0, SEEK_END) != 0))
                fail(file, 0);
        }
    for (int file = 0; file < files; file++)
        if (fclose(streams[file]) != 0)
            fail(file, 0);
}

/* ---- descriptors ---- */

struct share {
    int descriptor, file;
    size_t first, end;
};

static void *write_share(void *argument)
{
    const struct share *share = argument;
    for (size_t at = share->first; at < share->end;) {
        size_t count = share->end - at < 65536 ? share->end - at : 65536;
        ssize_t written = pwrite(share->descriptor, content[share->file] + at, count, (off_t)at);
        if (written < 0)
            fail(share->file, 0);
        at += (size_t)written;
    }
    return NULL;
}

static void write_by_threads(int descriptor, int file)
{
    pthread_t threads[THREADS];
    struct share shares[THREADS];
    for (int index = 0; index < THREADS; index++) {
        size_t first = bytes * (size_t)index / THREADS, end = bytes * (size_t)(index + 1) / THREADS;
        shares[index] = (struct share){descriptor, file, first, end};
        check(pthread_create(&threads[index], NULL, write_share, &shares[index]) == 0, "pthread_create");
    }
    for (int index = 0; index < THREADS; index++)
        check(pthread_join(threads[index], NULL) == 0, "pthread_join");
}

static ssize_t put_bytes(int descriptor, const char *from, size_t count, off_t at)
{
    if (is("pwrite"))
        return pwrite(descriptor, from, count, at);
    if (is("writev")) {
        size_t half = count / 2;
        struct iovec pieces[] = {{(char *)from, half}, {(char *)from + half, count - half}};
        return writev(descriptor, pieces, 2);
    }
    return write(descriptor, from, count);
}

static void write_rest(int descriptor, int file, size_t at)
{
    while (at < bytes) {
        size_t count = bytes - at < 50000 ? bytes - at : 50000;
        ssize_t written = put_bytes(descriptor, content[file] + at, count, (off_t)at);
        if (written < 0)
            fail(file, at);
        at += (size_t)written;
    }
}

static void map_file(int descriptor, int file)
{
    check(ftruncate(descriptor, (off_t)bytes) == 0, "ftruncate");
    char *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    check(mapped != MAP_FAILED, "mmap");
    memcpy(mapped, content[file], bytes);
    check(munmap(mapped, bytes) == 0, "munmap");
}

/* One process has the header written, another the rest, both with the file open. */
static void write_by_two(const char *path, int descriptor, int file)
{
    pid_t child;
    check(write(descriptor, header, sizeof header) == sizeof header, path);
    fflush(NULL);
    if (is("fork")) {
        check((child = fork()) >= 0, "fork");
        if (child == 0) {
            write_rest(descriptor, file, sizeof header);
            _exit(0);
        }
    } else {
        char number[16], count[32];
        snprintf(number, sizeof number, "%d", file);
        snprintf(count, sizeof count, "%zu", records);
        check((child = fork()) >= 0, "fork");
        if (child == 0) {
            /* Its own dataset, the same spool. */
            if (getenv("OTHER_CONFIG") != NULL)
                setenv("TURBIDITE_CONFIG", getenv("OTHER_CONFIG"), 1);
            execl("/proc/self/exe", "spooler", "continue", path, number, count, (char *)NULL);
            _exit(1);
        }
    }
    int status;
    check(waitpid(child, &status, 0) == child, "waitpid");
    if (status != 0)
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void write_descriptors(int epoch, int files)
{
    int append = is("append") ? O_APPEND : 0, descriptors[MAX_FILES];
    for (int file = 0; file < files; file++) {
        descriptors[file] = open(path_of(epoch, file), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | append, 0640);
        if (descriptors[file] < 0)
            fail(file, 0);
    }
    for (int file = 0; file < files; file++) {
        int descriptor = descriptors[file];
        if (is("threads"))
            write_by_threads(descriptor, file);
        else if (is("mmap"))
            map_file(descriptor, file);
        else if (is("fork") || is("two"))
            write_by_two(path_of(epoch, file), descriptor, file);
        else if (is("dup")) {
            int other = dup(descriptor);
            check(other >= 0 && write(descriptor, header, sizeof header) == sizeof header, "dup");
            check(close(descriptor) == 0, "close");
            write_rest(descriptor = other, file, sizeof header);
        } else
            write_rest(descriptor, file, 0);
        struct stat about;
        int flags = fcntl(descriptor, F_GETFL);
        check(fstat(descriptor, &about) == 0 && (about.st_mode & 0777) == 0640, "the file has another mode");
        check((flags & (O_ACCMODE | O_APPEND)) == (O_RDWR | append), "the flags are others");
        check(is("dup") || fcntl(descriptor, F_GETFD) == FD_CLOEXEC, "the descriptor is another");
        descriptors[file] = descriptor;
    }
    for (int file = 0; file < files; file++)
        if (close(descriptors[file]) != 0)
            fail(file, 0);
}

/* A quarter of each file, closed; then the rest, appended. */
static void write_reopened(int epoch, int files)
{
    size_t quarter = bytes / 4;
    for (int file = 0; file < files; file++) {
        FILE *stream = fopen(path_of(epoch, file), "w");
        if (stream == NULL || fwrite(content[file], 1, quarter, stream) != quarter || fclose(stream) != 0)
            fail(file, 0);
    }
    for (int file = 0; file < files; file++) {
        FILE *stream = fopen(path_of(epoch, file), "a");
        if (stream == NULL || fwrite(content[file] + quarter, 1, bytes - quarter, stream) != bytes - quarter ||
            fclose(stream) != 0)
            fail(file, quarter);
    }
}

/* The other process of "two": it knows the file by its path. */
static int continue_file(const char *path, int file)
{
    const char *number = strstr(path, "/E.") + 3;
    make_content(atoi(number), file);
    int descriptor = open(path, O_WRONLY | O_APPEND);
    if (descriptor < 0)
        fail(file, sizeof header);
    habit = "append";
    write_rest(descriptor, file, sizeof header);
    return close(descriptor);
}

int main(int count, char **arguments)
{
    check(count >= 5, "usage: spooler HABIT OUT FILES RECORDS [EPOCHS]");
    habit = arguments[1];
    folder = arguments[2];
    records = strtoull(arguments[4], NULL, 10);
    bytes = sizeof header + records * sizeof(struct record);
    for (int file = 0; file < MAX_FILES; file++)
        check((content[file] = malloc(bytes)) != NULL, "malloc");
    int files = atoi(arguments[3]), epochs = count > 5 ? atoi(arguments[5]) : 1;
    if (is("continue"))
        return continue_file(folder, files);
    check(mkdir(folder, 0777) == 0 || errno == EEXIST, folder);
    for (int epoch = 1; epoch <= epochs; epoch++) {
        for (int file = 0; file < files; file++)
            make_content(epoch, file);
        if (strncmp(habit, "f", 1) == 0 && !is("fork"))
            write_streams(epoch, files);
        else if (is("putc_unlocked") || is("seek"))
            write_streams(epoch, files);
        else if (is("reopen"))
            write_reopened(epoch, files);
        else
            write_descriptors(epoch, files);
    }
    if (getenv("SPOOLER_DIES") != NULL)
        raise(SIGKILL);
    return 0;
}
