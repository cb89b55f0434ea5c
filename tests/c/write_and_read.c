/* The C interface in a program of one rank: what is written is what is read, and what is wrong is said. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "arrow.h"
#include "check.h"
#include "turbidite.h"

typedef struct particle {
    float energy;
    uint32_t tag; /* not stored: a struct of the program need not be as we store it */
    uint64_t id;
} particle;

enum { COUNT = 100000, EPOCHS = 3 };

static const turbidite_column COLUMNS[] = {{"energy", TURBIDITE_F32, 0, "mc^2"}, {"id", TURBIDITE_U64, 0, NULL}};

static void fill(particle *particles, int epoch) {
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t scattered = (i * 2654435761u + (uint64_t)epoch) % COUNT;
        particles[i] = (particle){(float)scattered / COUNT * (float)(epoch + 1), 0xdead, i};
    }
}

static void write_epochs(const char *path) {
    turbidite_options options;
    turbidite_options_init(&options);
    CHECK(options.struct_size == sizeof options);
    options.source = "tests/c";
    turbidite_dataset *dataset = NULL;
    CHECK(turbidite_open(path, COLUMNS, 2, "energy", &options, NULL, &dataset) == TURBIDITE_OK);
    particle *particles = malloc(COUNT * sizeof *particles);
    CHECK(particles);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        CHECK(turbidite_begin_epoch(dataset, (uint64_t)epoch) == TURBIDITE_OK);
        fill(particles, epoch);
        for (size_t begin = 0; begin < COUNT; begin += 1000) {
            turbidite_view views[] = {turbidite_values(&particles[begin].energy, sizeof *particles),
                                      turbidite_values(&particles[begin].id, sizeof *particles)};
            CHECK(turbidite_append(dataset, views, 2, 1000) == TURBIDITE_OK);
        }
        CHECK(turbidite_progress(dataset) == TURBIDITE_OK);
        CHECK(turbidite_renegotiate(dataset) == TURBIDITE_OK);
        turbidite_epoch_metrics metrics = {.struct_size = sizeof metrics};
        if (epoch == 1) {
            CHECK(turbidite_end_epoch_start(dataset) == TURBIDITE_OK);
            CHECK(turbidite_append(dataset, NULL, 0, 0) == TURBIDITE_USAGE);
            CHECK(turbidite_end_epoch_wait(dataset, &metrics) == TURBIDITE_OK);
        } else {
            CHECK(turbidite_end_epoch(dataset, &metrics) == TURBIDITE_OK);
        }
        CHECK(metrics.rows == COUNT && metrics.ranks == 1 && metrics.bytes_written > COUNT * 12 && metrics.wall_s > 0);
    }
    free(particles);
    CHECK(turbidite_begin_epoch(dataset, 1) == TURBIDITE_FAILED);
    CHECK(strstr(turbidite_last_error(), "epoch 1 already exists"));
    CHECK(strstr(turbidite_last_error(), "TURBIDITE_IF_EXISTS_REPLACE"));
    turbidite_dataset *second = (turbidite_dataset *)&options;
    CHECK(turbidite_open(path, COLUMNS, 2, "energy", NULL, NULL, &second) == TURBIDITE_FAILED);
    CHECK(strstr(turbidite_last_error(), "is locked by") && second == NULL);
    /* Not even on request: two datasets in one folder would be mixed. */
    turbidite_options options_of_second;
    turbidite_options_init(&options_of_second);
    options_of_second.break_lock = 1;
    CHECK(turbidite_open(path, COLUMNS, 2, "energy", &options_of_second, NULL, &second) == TURBIDITE_FAILED);
    CHECK(strstr(turbidite_last_error(), "of this job;") && !strstr(turbidite_last_error(), "break"));
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

/* A folder with other files is no place for a dataset. */
static void occupied(const char *path) {
    char folder[4096], file[4200];
    snprintf(folder, sizeof folder, "%s-occupied", path);
    snprintf(file, sizeof file, "%s/notes.txt", folder);
    CHECK(mkdir(folder, 0777) == 0);
    FILE *notes = fopen(file, "w");
    CHECK(notes && fclose(notes) == 0);
    turbidite_dataset *dataset;
    CHECK(turbidite_open(folder, COLUMNS, 2, "energy", NULL, NULL, &dataset) == TURBIDITE_FAILED);
    CHECK(strstr(turbidite_last_error(), "has other files, such as notes.txt"));
    CHECK(remove(file) == 0);
    CHECK(turbidite_open(folder, COLUMNS, 2, "energy", NULL, NULL, &dataset) == TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

static void restart(const char *path) {
    turbidite_options options;
    turbidite_options_init(&options);
    options.if_exists = TURBIDITE_IF_EXISTS_SKIP;
    turbidite_dataset *dataset;
    CHECK(turbidite_open(path, COLUMNS, 2, "energy", &options, NULL, &dataset) == TURBIDITE_OK);
    CHECK(turbidite_begin_epoch(dataset, 0) == TURBIDITE_SKIPPED);
    CHECK(turbidite_truncate_after(dataset, 0) == TURBIDITE_OK);
    CHECK(turbidite_begin_epoch(dataset, 1) == TURBIDITE_OK);
    /* Packed rows: energy and id without a gap. */
    unsigned char rows[2][12];
    for (uint64_t i = 0; i < 2; i++) {
        float energy = 0.25f + (float)i;
        memcpy(rows[i], &energy, 4);
        memcpy(rows[i] + 4, &i, 8);
    }
    CHECK(turbidite_append_rows(dataset, rows, sizeof rows[0], 2) == TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "epoch 1, rank 0: it has not ended"));
    CHECK(turbidite_open(path, COLUMNS, 2, "energy", &options, NULL, &dataset) == TURBIDITE_OK);
    CHECK(turbidite_epoch_attribute(dataset, "time", 1, "s") == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "none has begun"));
    CHECK(turbidite_begin_epoch(dataset, 1) == TURBIDITE_OK);
    CHECK(turbidite_append_rows(dataset, rows, sizeof rows[0], 2) == TURBIDITE_OK);
    CHECK(turbidite_epoch_attribute(dataset, "time", 0.0 / 0.0, "fs") == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "attribute: 'time': NaN is not finite"));
    CHECK(turbidite_epoch_attribute(dataset, NULL, 1, NULL) == TURBIDITE_USAGE);
    CHECK(turbidite_epoch_attribute(dataset, "time", 2.5, "fs") == TURBIDITE_OK);
    CHECK(turbidite_epoch_attribute(dataset, "beam charge", -3, NULL) == TURBIDITE_OK);
    CHECK(turbidite_end_epoch(dataset, NULL) == TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

/* Sum of the ids, and the number of rows; energies have to ascend when `ordered`. */
static uint64_t query(turbidite_reader *reader, const char *where, const char *epochs, uint64_t limit, int64_t *rows) {
    const char *columns[] = {"id", "energy"};
    turbidite_request request = {.struct_size = sizeof request, .ordered = 1, .where = where, .columns = columns,
                                 .column_count = 2, .epochs = epochs, .limit = limit};
    struct ArrowArrayStream stream;
    CHECK(turbidite_query(reader, &request, &stream) == TURBIDITE_OK);
    uint64_t sum = 0;
    float last = -INFINITY;
    *rows = 0;
    for (;;) {
        struct ArrowArray batch;
        CHECK(stream.get_next(&stream, &batch) == 0);
        if (!batch.release) break;
        CHECK(batch.n_children == 2);
        const uint64_t *ids = (const uint64_t *)batch.children[0]->buffers[1] + batch.children[0]->offset;
        const float *energies = (const float *)batch.children[1]->buffers[1] + batch.children[1]->offset;
        for (int64_t i = 0; i < batch.length; i++) {
            sum += ids[i];
            CHECK(energies[i] >= last);
            last = energies[i];
        }
        *rows += batch.length;
        batch.release(&batch);
    }
    stream.release(&stream);
    return sum;
}

/* Every wrong request names what is wrong. */
static void refused(turbidite_reader *reader) {
    struct ArrowArrayStream stream;
#define REFUSED(words, ...)                                                             \
    do {                                                                                \
        turbidite_request wrong = {.struct_size = sizeof wrong, __VA_ARGS__};           \
        CHECK(turbidite_query(reader, &wrong, &stream) == TURBIDITE_USAGE);             \
        CHECK(strstr(turbidite_last_error(), words));                                   \
    } while (0)
    REFUSED("there is no share 3 of 3", .share = 3, .shares = 3);
    REFUSED("shares: is 0, but share is 3", .share = 3);
    REFUSED("a query with a limit", .shares = 3, .limit = 10);
    REFUSED("box '': the side is empty", .box = "");
    REFUSED("box 'energy': a column and '=' are missing", .box = "energy");
    REFUSED("box 'energie=0:1': there is no column", .box = "energie=0:1");
    REFUSED("box 'energy=1:0': the bounds are in descending order", .box = "energy=1:0");
    REFUSED("box: is not UTF-8", .box = "\xff");
    REFUSED("period: there is no box", .period = "1");
    REFUSED("period 'nan': a period is finite and above zero", .box = "energy=0:1", .period = "nan");
    REFUSED("period '0': a period is finite and above zero", .box = "energy=0:1", .period = "0");
    REFUSED("period '-1': a period is finite and above zero", .box = "energy=0:1", .period = "-1");
    REFUSED("period '1,1': the box has 1 side", .box = "energy=0:1", .period = "1,1");
#undef REFUSED
    /* Sizes that no header has had. */
    uint32_t sizes[] = {offsetof(turbidite_request, limit), 0, sizeof(turbidite_request) + 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        turbidite_request wrong = {.struct_size = sizes[i]};
        CHECK(turbidite_query(reader, &wrong, &stream) == TURBIDITE_USAGE);
        CHECK(strstr(turbidite_last_error(), "set it to sizeof(turbidite_request)"));
    }
}

static void read_back(const char *path) {
    turbidite_reader *reader;
    CHECK(turbidite_reader_open(path, &reader) == TURBIDITE_OK);
    int64_t rows;
    CHECK(query(reader, NULL, "2", 0, &rows) == (uint64_t)COUNT * (COUNT - 1) / 2 && rows == COUNT);
    particle *particles = malloc(COUNT * sizeof *particles);
    CHECK(particles);
    fill(particles, 2);
    uint64_t expected = 0;
    int64_t expected_rows = 0;
    for (int i = 0; i < COUNT; i++) {
        if (particles[i].energy >= 0.5f && particles[i].energy < 0.75f) {
            expected += particles[i].id;
            expected_rows++;
        }
    }
    free(particles);
    CHECK(expected_rows > 1000);
    CHECK(query(reader, "energy >= 0.5 AND energy < 0.75", "2", 0, &rows) == expected && rows == expected_rows);
    query(reader, NULL, NULL, 10, &rows);
    CHECK(rows == 10);
    struct ArrowArrayStream stream;
    turbidite_request request = {.struct_size = sizeof request, .where = "energie > 1"};
    CHECK(turbidite_query(reader, &request, &stream) == TURBIDITE_USAGE && strstr(turbidite_last_error(), "energie"));
    request = (turbidite_request){.struct_size = sizeof request, .epochs = "9"};
    CHECK(turbidite_query(reader, &request, &stream) == TURBIDITE_FAILED && strstr(turbidite_last_error(), "epoch 9 does not exist"));
    CHECK(turbidite_reader_bytes_read(reader) >= (uint64_t)COUNT * 12 && turbidite_reader_bytes_read(NULL) == 0);
    refused(reader);
    turbidite_reader_close(reader);
    turbidite_reader_close(NULL);
}

static void mistakes(const char *path) {
    turbidite_dataset *dataset;
    turbidite_column bad_type[] = {{"energy", 77, 0, NULL}};
    CHECK(turbidite_open(path, bad_type, 1, "energy", NULL, NULL, &dataset) == TURBIDITE_USAGE);
    CHECK(turbidite_open(path, COLUMNS, 2, "missing", NULL, NULL, &dataset) == TURBIDITE_USAGE);
    CHECK(turbidite_open(NULL, COLUMNS, 2, "energy", NULL, NULL, &dataset) == TURBIDITE_USAGE);
    CHECK(turbidite_open(path, COLUMNS, 2, "energy", NULL, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(turbidite_open(path, COLUMNS, 1, "energy", NULL, NULL, &dataset) == TURBIDITE_FAILED);
    CHECK(strstr(turbidite_last_error(), "is a dataset with another schema"));
    turbidite_options unfilled = {0};
    CHECK(turbidite_open(path, COLUMNS, 2, "energy", &unfilled, NULL, &dataset) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "turbidite_options_init"));
    CHECK(turbidite_begin_epoch(NULL, 0) == TURBIDITE_USAGE);
    CHECK(turbidite_close(NULL) == TURBIDITE_OK);
    turbidite_reader *reader;
    CHECK(turbidite_reader_open("/nonexistent/dataset", &reader) == TURBIDITE_FAILED && reader == NULL);
    CHECK(turbidite_open(path, COLUMNS, 2, "energy", NULL, NULL, &dataset) == TURBIDITE_OK);
    CHECK(turbidite_append(dataset, NULL, 0, 0) == TURBIDITE_USAGE);
    CHECK(turbidite_begin_epoch(dataset, 50) == TURBIDITE_OK);
    const float *no_energies = NULL;
    const uint64_t *no_ids = NULL;
    turbidite_view missing[] = {turbidite_values(no_energies, 4), turbidite_values(no_ids, 8)};
    CHECK(turbidite_append(dataset, missing, 2, 0) == TURBIDITE_OK);
    turbidite_epoch_metrics unsized = {0};
    CHECK(turbidite_end_epoch(dataset, &unsized) == TURBIDITE_USAGE && strstr(turbidite_last_error(), "struct_size"));
    CHECK(turbidite_end_epoch(dataset, NULL) == TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
}

/* A dataset that is clustered by the hash of its ids. */
static void hashed(const char *path) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s-hashed", path);
    turbidite_dataset *dataset;
    CHECK(turbidite_open(folder, COLUMNS, 2, "hash:energy", NULL, NULL, &dataset) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "hash:energy"));
    CHECK(turbidite_open(folder, COLUMNS, 2, "hash:id", NULL, NULL, &dataset) == TURBIDITE_OK);
    CHECK(turbidite_begin_epoch(dataset, 0) == TURBIDITE_OK);
    particle *particles = malloc(COUNT * sizeof *particles);
    CHECK(particles);
    fill(particles, 0);
    turbidite_view views[] = {turbidite_values(&particles->energy, sizeof *particles),
                              turbidite_values(&particles->id, sizeof *particles)};
    CHECK(turbidite_append(dataset, views, 2, COUNT) == TURBIDITE_OK);
    free(particles);
    CHECK(turbidite_end_epoch(dataset, NULL) == TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
    turbidite_reader *reader;
    CHECK(turbidite_reader_open(folder, &reader) == TURBIDITE_OK);
    int64_t rows;
    CHECK(query(reader, "id = 4242", NULL, 0, &rows) == 4242 && rows == 1);
    CHECK(query(reader, "id = 100000", NULL, 0, &rows) == 0 && rows == 0);
    turbidite_reader_close(reader);
}

static int64_t count_in_box(turbidite_reader *reader, const char *box, const char *period) {
    turbidite_request request = {.struct_size = sizeof request, .box = box, .period = period};
    struct ArrowArrayStream stream;
    CHECK(turbidite_query(reader, &request, &stream) == TURBIDITE_OK);
    int64_t rows = 0;
    for (;;) {
        struct ArrowArray batch;
        CHECK(stream.get_next(&stream, &batch) == 0);
        if (!batch.release)
            break;
        rows += batch.length;
        batch.release(&batch);
    }
    stream.release(&stream);
    return rows;
}

/* Boxes wrap at the periods that the dataset states. */
static void periodic(const char *path) {
    static const turbidite_column places[] = {{"x", TURBIDITE_F32, 0, NULL}, {"y", TURBIDITE_F64, 0, NULL}};
    char folder[4096];
    snprintf(folder, sizeof folder, "%s-periodic", path);
    float x[100];
    double y[100];
    for (int i = 0; i < 100; i++) {
        x[i] = (float)i;
        y[i] = i % 10;
    }
    turbidite_options options;
    turbidite_options_init(&options);
    CHECK(options.period == NULL);
    turbidite_dataset *dataset;
    options.period = "100,-10";
    CHECK(turbidite_open(folder, places, 2, "space:x,y", &options, NULL, &dataset) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "finite and above zero, not -10"));
    options.period = "100,10";
    CHECK(turbidite_open(folder, places, 2, "space:x,y", &options, NULL, &dataset) == TURBIDITE_OK);
    CHECK(turbidite_begin_epoch(dataset, 0) == TURBIDITE_OK);
    turbidite_view views[] = {turbidite_values(x, sizeof x[0]), turbidite_values(y, sizeof y[0])};
    CHECK(turbidite_append(dataset, views, 2, 100) == TURBIDITE_OK);
    CHECK(turbidite_end_epoch(dataset, NULL) == TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
    options.period = "100,";
    CHECK(turbidite_open(folder, places, 2, "space:x,y", &options, NULL, &dataset) == TURBIDITE_FAILED);
    CHECK(strstr(turbidite_last_error(), "it has the periods '100,10', but '100,' were requested"));
    turbidite_reader *reader;
    CHECK(turbidite_reader_open(folder, &reader) == TURBIDITE_OK);
    double periods[3];
    CHECK(turbidite_reader_periods(reader, periods) == TURBIDITE_OK);
    CHECK(periods[0] == 100 && periods[1] == 10 && periods[2] == 0);
    CHECK(count_in_box(reader, "95:115,:", NULL) == 20);
    CHECK(count_in_box(reader, "95:115,8:11", NULL) == 6);
    CHECK(count_in_box(reader, "95:115,8:11", ",none") == 4);
    CHECK(count_in_box(reader, "95:115,8:11", "none,none") == 2);
    turbidite_reader_close(reader);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(turbidite_abi_version() == TURBIDITE_ABI_VERSION && strlen(turbidite_version()) >= 5);
    CHECK(strstr(turbidite_last_error(), "no call"));
    write_epochs(argv[1]);
    read_back(argv[1]);
    mistakes(argv[1]);
    occupied(argv[1]);
    restart(argv[1]);
    hashed(argv[1]);
    periodic(argv[1]);
    puts("ok");
    return 0;
}
