/*
 * A restart: every rank reads its share of a query, without messages.
 *
 *     mpi_shares DATASET FOLDER EPOCHS WHERE BOX PERIOD ORDERED
 *
 * "-" stands for NULL. Rank i writes the packed rows of its share to FOLDER/rows.i, and rank 0 those of the whole
 * query to FOLDER/rows.whole. Rank 0 prints the rows and the read bytes of each share, and the bytes of the whole query.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "turbidite.h"

#define CHECK(condition)                                                                                        \
    do {                                                                                                        \
        if (!(condition)) {                                                                                     \
            fprintf(stderr, "%s:%d: rank %d: %s is false; last error: %s\n", __FILE__, __LINE__, rank, #condition, \
                    turbidite_last_error());                                                                    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                       \
        }                                                                                                       \
    } while (0)

enum { MAX_COLUMNS = 32 };

static int rank, ranks;

static const char *or_null(const char *argument) { return strcmp(argument, "-") == 0 ? NULL : argument; }

static size_t width(const char *format) {
    switch (format[0]) {
    case 'i': case 'f': return 4;
    case 'L': case 'l': case 'g': return 8;
    default: CHECK(!"a format of this program"); return 0;
    }
}

/* Runs a request and writes its packed rows to a file. Returns their number, and sets the bytes that were read. */
static uint64_t read_rows(const char *dataset, const turbidite_request *request, const char *path, uint64_t *bytes) {
    turbidite_reader *reader;
    CHECK(turbidite_reader_open(dataset, &reader) == TURBIDITE_OK);
    struct ArrowArrayStream stream;
    CHECK(turbidite_query(reader, request, &stream) == TURBIDITE_OK);
    struct ArrowSchema schema;
    CHECK(stream.get_schema(&stream, &schema) == 0 && schema.n_children <= MAX_COLUMNS);
    size_t widths[MAX_COLUMNS];
    for (int64_t i = 0; i < schema.n_children; i++) widths[i] = width(schema.children[i]->format);
    FILE *out = fopen(path, "wb");
    CHECK(out);
    uint64_t rows = 0;
    for (;;) {
        struct ArrowArray batch;
        CHECK(stream.get_next(&stream, &batch) == 0);
        if (!batch.release) break;
        CHECK(batch.n_children == schema.n_children && batch.offset == 0);
        for (int64_t row = 0; row < batch.length; row++) {
            for (int64_t i = 0; i < batch.n_children; i++) {
                const struct ArrowArray *column = batch.children[i];
                const char *value = (const char *)column->buffers[1] + (size_t)(column->offset + row) * widths[i];
                CHECK(fwrite(value, widths[i], 1, out) == 1);
            }
        }
        rows += (uint64_t)batch.length;
        batch.release(&batch);
    }
    CHECK(fclose(out) == 0);
    schema.release(&schema);
    stream.release(&stream);
    *bytes = turbidite_reader_bytes_read(reader);
    turbidite_reader_close(reader);
    return rows;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(argc == 8);
    turbidite_request request = {
        .struct_size = sizeof request, .ordered = atoi(argv[7]), .where = or_null(argv[4]), .epochs = or_null(argv[3]),
        .box = or_null(argv[5]), .period = or_null(argv[6]), .share = (uint64_t)rank, .shares = (uint64_t)ranks,
    };
    char path[4096];
    snprintf(path, sizeof path, "%s/rows.%d", argv[2], rank);
    uint64_t own[2], whole_bytes = 0;
    own[0] = read_rows(argv[1], &request, path, &own[1]);

    uint64_t *each = malloc((size_t)ranks * sizeof own);
    CHECK(each);
    MPI_Gather(own, 2, MPI_UINT64_T, each, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        request.share = request.shares = 0;
        snprintf(path, sizeof path, "%s/rows.whole", argv[2]);
        uint64_t rows = read_rows(argv[1], &request, path, &whole_bytes), sum = 0;
        for (int i = 0; i < ranks; i++) sum += each[2 * i];
        CHECK(sum == rows);
        for (int field = 0; field < 2; field++) {
            printf("%s", field == 0 ? "{\"rows\": [" : "], \"bytes\": [");
            for (int i = 0; i < ranks; i++) printf("%s%" PRIu64, i ? ", " : "", each[2 * i + field]);
        }
        printf("], \"whole_bytes\": %" PRIu64 "}\n", whole_bytes);
    }
    free(each);
    MPI_Finalize();
    return 0;
}
