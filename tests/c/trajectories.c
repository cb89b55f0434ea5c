/*
 * Looks up and follows particles.
 *
 *     trajectories DATASET get ID IDS TYPES COLUMNS EPOCHS USE OUT [SCRATCH]
 *     trajectories DATASET tracks ID IDS TYPES COLUMNS EPOCHS USE OUT [SCRATCH]
 *     trajectories DATASET of ID PREDICATE AT COLUMNS EPOCHS USE OUT [SCRATCH]
 *     trajectories DATASET mistakes
 *
 * IDS is a file of packed ids, whose columns have these TYPES of NumPy: "<u4,<u8". COLUMNS are separated by commas. "-" stands
 * for NULL. Writes the packed rows to the file OUT, and prints the names of the columns, then the metrics.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "check.h"
#include "turbidite.h"

enum { MOST = 16 };

static const char *or_null(const char *argument) { return strcmp(argument, "-") == 0 ? NULL : argument; }

/* Cuts a list at its commas, in place. */
static size_t cut(char *list, const char **parts) {
    size_t count = 0;
    for (char *part = strtok(list, ","); part; part = strtok(NULL, ",")) {
        CHECK(count < MOST);
        parts[count++] = part;
    }
    return count;
}

static size_t width(const char *format) {
    switch (format[0]) {
    case 'c': case 'C': return 1;
    case 's': case 'S': return 2;
    case 'i': case 'I': case 'f': return 4;
    case 'l': case 'L': case 'g': return 8;
    case 'w': return (size_t)atoi(format + 2);
    default: CHECK(!"a format of this program"); return 0;
    }
}

static void write_rows(struct ArrowArrayStream *stream, const char *path) {
    struct ArrowSchema schema;
    CHECK(stream->get_schema(stream, &schema) == 0 && schema.n_children <= 2 * MOST);
    size_t widths[2 * MOST];
    for (int64_t i = 0; i < schema.n_children; i++) {
        widths[i] = width(schema.children[i]->format);
        printf("%s%s", i ? "," : "", schema.children[i]->name);
    }
    puts("");
    FILE *out = fopen(path, "wb");
    CHECK(out);
    for (;;) {
        struct ArrowArray batch;
        CHECK(stream->get_next(stream, &batch) == 0);
        if (!batch.release) break;
        CHECK(batch.n_children == schema.n_children && batch.offset == 0);
        for (int64_t row = 0; row < batch.length; row++) {
            for (int64_t i = 0; i < batch.n_children; i++) {
                const struct ArrowArray *column = batch.children[i];
                const char *value = (const char *)column->buffers[1] + (size_t)(column->offset + row) * widths[i];
                CHECK(fwrite(value, widths[i], 1, out) == 1);
            }
        }
        batch.release(&batch);
    }
    CHECK(fclose(out) == 0);
    schema.release(&schema);
    stream->release(stream);
}

static void print_metrics(const turbidite_track_metrics *metrics) {
    printf("{\"epochs\": %" PRIu32 ", \"ids\": %" PRIu64 ", \"rows\": %" PRIu64 ", \"incomplete_ids\": %" PRIu64
           ", \"absent_ids\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"bytes_read\": %" PRIu64 "}\n",
           metrics->epochs, metrics->ids, metrics->rows, metrics->incomplete_ids, metrics->absent_ids, metrics->missing,
           metrics->duplicates, metrics->bytes_read);
}

/* The type of a column of ids, as NumPy names it. */
static turbidite_column typed(const char *name) {
    if (strcmp(name, "<i4") == 0) return (turbidite_column){NULL, TURBIDITE_I32, 0, NULL};
    if (strcmp(name, "<i8") == 0) return (turbidite_column){NULL, TURBIDITE_I64, 0, NULL};
    if (strcmp(name, "<u4") == 0) return (turbidite_column){NULL, TURBIDITE_U32, 0, NULL};
    if (strcmp(name, "<u8") == 0) return (turbidite_column){NULL, TURBIDITE_U64, 0, NULL};
    CHECK(name[0] == '|' && name[1] == 'V');
    return (turbidite_column){NULL, TURBIDITE_BYTES, (uint32_t)atoi(name + 2), NULL};
}

static size_t bytes_of(const turbidite_column *column) {
    return column->width ? column->width : column->type == TURBIDITE_I32 || column->type == TURBIDITE_U32 ? 4 : 8;
}

/* Reads a file of packed ids, and makes views of their columns. */
static void *read_ids(const char *path, char *types, turbidite_view *views, size_t *view_count, size_t *id_count) {
    const char *names[MOST];
    turbidite_column columns[MOST];
    *view_count = cut(types, names);
    size_t stride = 0;
    for (size_t i = 0; i < *view_count; i++) {
        columns[i] = typed(names[i]);
        stride += bytes_of(&columns[i]);
    }
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    /* Exactly as large as the ids, so that Valgrind sees a read beyond them. */
    char *ids = malloc(bytes);
    CHECK(ids && fread(ids, 1, bytes, file) == bytes && fclose(file) == 0);
    size_t offset = 0;
    for (size_t i = 0; i < *view_count; i++) {
        views[i] = turbidite_column_values(&columns[i], ids + offset, stride);
        offset += bytes_of(&columns[i]);
    }
    *id_count = bytes / stride;
    return ids;
}

static void follow(const char *path, char **arguments, const char *scratch) {
    const char *columns[MOST];
    turbidite_view views[MOST];
    turbidite_track_request request = {.struct_size = sizeof request, .id = or_null(arguments[1])};
    void *ids = NULL;
    if (strcmp(arguments[0], "of") == 0) {
        request.of = arguments[2];
        request.at = strtoull(arguments[3], NULL, 10);
    } else {
        ids = read_ids(arguments[2], arguments[3], views, &request.view_count, &request.id_count);
        request.ids = views;
    }
    if (or_null(arguments[4])) {
        request.columns = columns;
        request.column_count = cut(arguments[4], columns);
    }
    request.epochs = or_null(arguments[5]);
    request.use = or_null(arguments[6]);
    request.threads = 2;
    request.scratch = scratch;
    turbidite_reader *reader;
    CHECK(turbidite_reader_open(path, &reader) == TURBIDITE_OK);
    struct ArrowArrayStream stream;
    turbidite_track_metrics metrics = {.struct_size = sizeof metrics};
    if (strcmp(arguments[0], "get") == 0) {
        turbidite_get_request listed = {.struct_size = sizeof listed, .threads = request.threads, .id = request.id,
            .ids = views, .view_count = request.view_count, .id_count = request.id_count, .columns = request.columns,
            .column_count = request.column_count, .epochs = request.epochs, .use = request.use, .scratch = scratch};
        CHECK(turbidite_get(reader, &listed, &stream, &metrics) == TURBIDITE_OK);
    } else {
        CHECK(turbidite_tracks(reader, &request, &stream, &metrics) == TURBIDITE_OK);
    }
    /* Nothing of the request is needed any more. */
    memset(views, 0xEE, sizeof views);
    free(ids);
    turbidite_reader_close(reader);
    write_rows(&stream, arguments[7]);
    print_metrics(&metrics);
}

static void refused(turbidite_reader *reader, const turbidite_track_request *request, turbidite_status status,
                    const char *words) {
    struct ArrowArrayStream stream;
    CHECK(turbidite_tracks(reader, request, &stream, NULL) == status && strstr(turbidite_last_error(), words));
    if (request && request->struct_size == sizeof *request && !request->of && !request->box) {
        turbidite_get_request listed;
        memcpy(&listed, request, sizeof listed);
        listed.struct_size = sizeof listed;
        CHECK(turbidite_get(reader, &listed, &stream, NULL) == status && strstr(turbidite_last_error(), words));
    }
}

/* Every wrong request names what is wrong. The dataset's key is "energy"; its column "id" has 32 bits. */
static void mistakes(const char *path) {
    turbidite_reader *reader;
    CHECK(turbidite_reader_open(path, &reader) == TURBIDITE_OK);
    int32_t ids[] = {16, -1, 16};
    turbidite_view view = turbidite_values(ids, sizeof ids[0]), two[] = {view, view}, narrow = turbidite_values(ids, 2);
    turbidite_view nowhere = turbidite_values((int32_t *)NULL, 4), unsigned_ids = turbidite_values((uint32_t *)ids, 4);
    const char *missing[] = {"energie"}, *unnamed[] = {NULL};
    const turbidite_track_request good = {.struct_size = sizeof good, .id = "id", .ids = &view, .view_count = 1, .id_count = 3};
    struct ArrowArrayStream stream;
    turbidite_track_metrics metrics = {.struct_size = sizeof metrics};
    CHECK(turbidite_tracks(reader, &good, &stream, &metrics) == TURBIDITE_OK);
    CHECK(metrics.ids == 2 && metrics.absent_ids == 1 && metrics.rows == metrics.epochs && metrics.missing == metrics.epochs);
    stream.release(&stream);
    refused(NULL, &good, TURBIDITE_USAGE, "reader");
    refused(reader, NULL, TURBIDITE_USAGE, "request: is NULL");
    CHECK(turbidite_tracks(reader, &good, NULL, NULL) == TURBIDITE_USAGE && strstr(turbidite_last_error(), "stream"));
    CHECK(turbidite_get(reader, NULL, &stream, NULL) == TURBIDITE_USAGE && strstr(turbidite_last_error(), "request"));
    metrics.struct_size = sizeof metrics + 1;
    CHECK(turbidite_tracks(reader, &good, &stream, &metrics) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "sizeof(turbidite_track_metrics)"));
#define REFUSED(status, words, ...)                      \
    do {                                                 \
        turbidite_track_request wrong = good;            \
        __VA_ARGS__;                                     \
        refused(reader, &wrong, status, words);          \
    } while (0)
    REFUSED(TURBIDITE_USAGE, "sizeof(turbidite_track_request)", wrong.struct_size = 0);
    REFUSED(TURBIDITE_USAGE, "sizeof(turbidite_track_request)", wrong.struct_size = sizeof(turbidite_get_request));
    REFUSED(TURBIDITE_USAGE, "ids", wrong.ids = NULL);
    REFUSED(TURBIDITE_USAGE, "view_count", wrong.ids = two; wrong.view_count = 2);
    REFUSED(TURBIDITE_USAGE, "view_count", wrong.view_count = 0);
    REFUSED(TURBIDITE_USAGE, "view_count", wrong.id = "id,i");
    REFUSED(TURBIDITE_USAGE, "stride", wrong.ids = &narrow);
    REFUSED(TURBIDITE_USAGE, "column 'id': the address of the values is NULL", wrong.ids = &nowhere);
    REFUSED(TURBIDITE_USAGE, "column 'id': the values are u32, but the column is i32", wrong.ids = &unsigned_ids);
    REFUSED(TURBIDITE_USAGE, "address space", wrong.id_count = SIZE_MAX);
    REFUSED(TURBIDITE_USAGE, "'energy', is f32", wrong.id = NULL);
    REFUSED(TURBIDITE_USAGE, "'energy' is f32", wrong.id = "energy");
    REFUSED(TURBIDITE_USAGE, "idd", wrong.id = "idd");
    REFUSED(TURBIDITE_USAGE, "UTF-8", wrong.id = "\xff");
    REFUSED(TURBIDITE_USAGE, "timesteps", wrong.id = "epoch");
    REFUSED(TURBIDITE_USAGE, "energie", wrong.columns = missing; wrong.column_count = 1);
    REFUSED(TURBIDITE_USAGE, "columns", wrong.columns = unnamed; wrong.column_count = 1);
    REFUSED(TURBIDITE_USAGE, "'5..' is neither an epoch", wrong.epochs = "5..");
    REFUSED(TURBIDITE_FAILED, "epoch 9 does not exist", wrong.epochs = "9");
    REFUSED(TURBIDITE_USAGE, "'nothing'", wrong.use = "nothing");
    REFUSED(TURBIDITE_USAGE, "ids", wrong.of = "energy > 1");
    REFUSED(TURBIDITE_USAGE, "of", wrong.ids = NULL; wrong.of = " ");
    REFUSED(TURBIDITE_USAGE, "energie", wrong.ids = NULL; wrong.of = "energie > 1"; wrong.at = 500);
    REFUSED(TURBIDITE_FAILED, "epoch 9 does not exist", wrong.ids = NULL; wrong.of = "energy > 1"; wrong.at = 9);
    REFUSED(TURBIDITE_USAGE, "box: excludes ids", wrong.box = "energy=0:1");
    REFUSED(TURBIDITE_USAGE, "box 'energy=1:0'", wrong.ids = NULL; wrong.box = "energy=1:0"; wrong.at = 500);
    REFUSED(TURBIDITE_USAGE, "period: there is no box", wrong.ids = NULL; wrong.of = "energy > 1"; wrong.period = "1"; wrong.at = 500);
    /* An empty list is a list. */
    turbidite_track_request empty = good;
    empty.ids = &nowhere;
    empty.id_count = 0;
    metrics = (turbidite_track_metrics){.struct_size = offsetof(turbidite_track_metrics, rows), .rows = 77};
    CHECK(turbidite_tracks(reader, &empty, &stream, &metrics) == TURBIDITE_OK);
    struct ArrowArray batch;
    CHECK(stream.get_next(&stream, &batch) == 0 && !batch.release);
    stream.release(&stream);
    /* Fields that an older program's struct lacks are not written. */
    CHECK(metrics.ids == 0 && metrics.epochs > 0 && metrics.rows == 77);
    turbidite_reader_close(reader);
    puts("ok");
}

int main(int argc, char **argv) {
    CHECK(argc == 3 || argc == 10 || argc == 11);
    if (argc == 3) mistakes(argv[1]);
    else follow(argv[1], argv + 2, argc == 11 ? argv[10] : NULL);
    return 0;
}
