#include "habits.h"

#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#define RECORDS 8000
#define LARGE_EPOCH 2
#define TIMES_AS_LARGE 8
#define MEETINGS 3

int rank, ranks = 1, last_epoch, missed;
const char *folder;
struct record *records;
size_t count, bytes;

static const struct habit *const TABLES[] = {STREAMS, STREAM_LIVES, DESCRIPTORS, TRANSFERS, MAPPINGS,
                                             NAMES,   FOLDERS,      INQUIRIES,   PROCESSES, FORKS,   ENDINGS, SHARES};
#define TABLE_COUNT (sizeof TABLES / sizeof *TABLES)

void check(int good, const char *condition, const char *file, int line)
{
    if (good)
        return;
    fprintf(stderr, "habits: rank %d, %s:%d: %s: %s\n", rank, file, line, condition, strerror(errno));
    exit(7);
}

void fill(int epoch, int of_rank, int version)
{
    count = RECORDS * (epoch == LARGE_EPOCH ? TIMES_AS_LARGE : 1);
    bytes = count * sizeof *records;
    for (uint64_t index = 0; index < count; index++) {
        uint64_t number = ((uint64_t)epoch * 64 + (uint64_t)of_rank) * 1000000 + index + (uint64_t)version * 1000000000000;
        records[index] = (struct record){(double)(number * 2654435761u % 1000003u) / 1000, number};
    }
}

static char *next_path(void)
{
    static __thread char paths[8][PATH_MAX];
    static __thread int next;
    return paths[next++ % 8];
}

const char *in_folder(const char *format, ...)
{
    char *path = next_path();
    int length = snprintf(path, PATH_MAX, "%s/", folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + length, PATH_MAX - (size_t)length, format, arguments);
    va_end(arguments);
    return path;
}

const char *path_of_rank(int epoch, int of_rank, const char *suffix)
{
    const char *parent = in_folder("E.%d", epoch);
    CHECK(mkdir(parent, 0777) == 0 || errno == EEXIST);
    return in_folder("E.%d/rows.%d%s", epoch, of_rank, suffix);
}

const char *path_of(int epoch, const char *suffix)
{
    return path_of_rank(epoch, rank, suffix);
}

int create(const char *path)
{
    int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(descriptor >= 0);
    return descriptor;
}

void write_all(int descriptor, const void *data, size_t size)
{
    const char *rest = data;
    while (size > 0) {
        ssize_t written = write(descriptor, rest, size);
        CHECK(written > 0);
        rest += written;
        size -= (size_t)written;
    }
}

void write_header(int descriptor)
{
    write_all(descriptor, HEADER, HEADER_BYTES);
}

void write_records(int descriptor)
{
    write_all(descriptor, records, bytes);
}

void write_content(int descriptor)
{
    write_header(descriptor);
    write_records(descriptor);
}

void print_content(FILE *stream)
{
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    CHECK(fwrite(records, sizeof *records, count, stream) == count);
}

void write_file(const char *path)
{
    FILE *stream = fopen(path, "w");
    CHECK(stream != NULL);
    print_content(stream);
    CHECK(fclose(stream) == 0);
}

const char *input_path(void)
{
    return in_folder("input.%d", rank);
}

int input_of_records(void)
{
    int descriptor = create(input_path());
    write_records(descriptor);
    CHECK(lseek(descriptor, 0, SEEK_SET) == 0);
    return descriptor;
}

void wait_for(pid_t child)
{
    int status;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

void run_shell(const char *format, ...)
{
    char command[3 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    CHECK(system(command) == 0);
}

void meet_once(void)
{
#ifdef WITH_MPI
    MPI_Barrier(MPI_COMM_WORLD);
#endif
}

void meet(void)
{
    /* Ranks agree on complete epochs at a rate, so a moment passes between the calls. */
    for (int meeting = 0; meeting < MEETINGS && ranks > 1; meeting++) {
        struct timespec moment = {0, 2000000};
        nanosleep(&moment, NULL);
        meet_once();
    }
}

void finish(void)
{
#ifdef WITH_MPI
    MPI_Finalize();
#endif
}

static const struct habit *habit_of(const char *name)
{
    for (size_t table = 0; table < TABLE_COUNT; table++)
        for (const struct habit *habit = TABLES[table]; habit->name; habit++)
            if (strcmp(habit->name, name) == 0)
                return habit;
    fprintf(stderr, "habits: there is no habit %s\n", name);
    exit(2);
}

static int list(void)
{
    for (size_t table = 0; table < TABLE_COUNT; table++)
        for (const struct habit *habit = TABLES[table]; habit->name; habit++)
            puts(habit->name);
    return 0;
}

int main(int argument_count, char **arguments)
{
    if (argument_count == 2 && strcmp(arguments[1], "list") == 0)
        return list();
#ifdef WITH_MPI
    MPI_Init(&argument_count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    int is_random = argument_count == 5 && strcmp(arguments[1], "random") == 0;
    if (!is_random && argument_count != 4) {
        fprintf(stderr, "usage: habits NAME FOLDER EPOCHS | habits random SEED FOLDER EPOCHS\n");
        return 2;
    }
    const struct habit *habit = is_random ? NULL : habit_of(arguments[1]);
    uint64_t seed = is_random ? strtoull(arguments[2], NULL, 10) : 0;
    folder = arguments[argument_count - 2];
    last_epoch = atoi(arguments[argument_count - 1]);
    records = malloc(RECORDS * TIMES_AS_LARGE * sizeof *records);
    CHECK(records != NULL);
    CHECK(mkdir(folder, 0777) == 0 || errno == EEXIST);
    for (int epoch = 1; epoch <= last_epoch; epoch++) {
        fill(epoch, rank, 0);
        if (is_random)
            write_at_random(seed, epoch);
        else
            habit->epoch(epoch);
        meet();
    }
    finish();
    return missed ? MISSED : 0;
}
