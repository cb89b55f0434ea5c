/*
 * Writes a dataset whose levels of detail are in proportion to a column, and reads it with a cursor.
 *
 *     weights DATASET
 *
 * Prints the number of rows and the sum of what they stand for when level 2, level 1 and everything are complete.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "check.h"
#include "turbidite.h"

#define ROWS 20000

static const turbidite_column COLUMNS[] = {{"x", TURBIDITE_F32, 0, NULL}, {"y", TURBIDITE_F32, 0, NULL}, {"w", TURBIDITE_F64, 0, NULL}};
static struct {
    float x, y;
    double w;
} rows[ROWS];

static turbidite_status open_dataset(const char *path, uint32_t levels, const char *weight, turbidite_dataset **dataset) {
    turbidite_options options;
    turbidite_options_init(&options);
    options.levels = levels;
    options.level_weight = weight;
    return turbidite_open(path, COLUMNS, 3, "space:x,y", &options, NULL, dataset);
}

static void write_dataset(const char *path) {
    turbidite_dataset *dataset;
    CHECK(open_dataset(path, 0, "w", &dataset) == TURBIDITE_USAGE && strstr(turbidite_last_error(), "state their number"));
    CHECK(open_dataset(path, 2, "v", &dataset) == TURBIDITE_USAGE && strstr(turbidite_last_error(), "not one of the columns"));
    CHECK(open_dataset(path, 2, "w", &dataset) == TURBIDITE_OK);
    for (int i = 0; i < ROWS; i++) {
        rows[i].x = (float)(i % 141);
        rows[i].y = (float)(i / 141);
        rows[i].w = i % 100 ? 1 : 500;
    }
    turbidite_view views[] = {turbidite_values(&rows[0].x, sizeof rows[0]), turbidite_values(&rows[0].y, sizeof rows[0]),
                              turbidite_values(&rows[0].w, sizeof rows[0])};
    CHECK(turbidite_begin_epoch(dataset, 3) == TURBIDITE_OK);
    CHECK(turbidite_append(dataset, views, 3, ROWS) == TURBIDITE_OK);
    CHECK(turbidite_end_epoch(dataset, NULL) == TURBIDITE_OK);
    CHECK(turbidite_close(dataset) == TURBIDITE_OK);
    CHECK(open_dataset(path, 2, "x", &dataset) == TURBIDITE_FAILED && strstr(turbidite_last_error(), "in proportion to 'w'"));
    CHECK(open_dataset(path, 2, NULL, &dataset) == TURBIDITE_OK && turbidite_close(dataset) == TURBIDITE_OK);
}

static void read_dataset(const char *path) {
    turbidite_reader *reader;
    turbidite_cursor *cursor;
    turbidite_request request = {sizeof request, .epochs = "3"};
    CHECK(turbidite_reader_open(path, &reader) == TURBIDITE_OK);
    CHECK(turbidite_cursor_open(reader, &request, NULL, &cursor) == TURBIDITE_OK);
    CHECK(turbidite_cursor_complete_level(cursor) == -1);
    uint64_t count = 0;
    for (int level = 2; level >= 0; level--) {
        struct ArrowArrayStream stream;
        struct ArrowArray batch;
        double sum = 0;
        CHECK(turbidite_cursor_advance(cursor, 0, pow(8, -level), &stream) == TURBIDITE_OK);
        for (;;) {
            CHECK(stream.get_next(&stream, &batch) == 0);
            if (!batch.release) {
                break;
            }
            double *numbers = malloc((size_t)batch.length * sizeof *numbers);
            CHECK(turbidite_cursor_stand_for(cursor, (uint32_t)level, numbers, (uint64_t)batch.length) == TURBIDITE_OK);
            for (int64_t i = 0; i < batch.length; i++) {
                CHECK(numbers[i] >= 1);
                sum += numbers[i];
            }
            count += (uint64_t)batch.length;
            free(numbers);
            batch.release(&batch);
        }
        stream.release(&stream);
        CHECK(turbidite_cursor_complete_level(cursor) == level);
        CHECK(turbidite_cursor_stands_for(cursor) == (level == 0) && turbidite_cursor_density_ratio(cursor) == 1);
        double *weights = malloc((size_t)count * sizeof *weights);
        CHECK(turbidite_cursor_weights(cursor, weights, count) == TURBIDITE_OK);
        for (uint64_t i = 0; i < count; i++) {
            CHECK(level ? weights[i] >= 1 : weights[i] == 1);
        }
        free(weights);
        printf("%d %" PRIu64 " %.17g\n", level, count, sum);
    }
    turbidite_cursor_close(cursor);
    turbidite_reader_close(reader);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    write_dataset(argv[1]);
    read_dataset(argv[1]);
    return 0;
}
