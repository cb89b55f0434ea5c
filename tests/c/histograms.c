/*
 * Counts rows in bins.
 *
 *     histograms DATASET exact|bounds|LEVEL WHERE EPOCHS X COUNT LOW HIGH [Y COUNT LOW HIGH]
 *     histograms DATASET mistakes
 *
 * "-" stands for NULL. Prints the metrics, then the edges of each axis, then the counts: at least, and at most; or with the
 * number of a level of detail the estimates and their errors.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "turbidite.h"

static const char *or_null(const char *argument) { return strcmp(argument, "-") == 0 ? NULL : argument; }

static turbidite_bins bins(char **arguments) {
    turbidite_bins bins = {sizeof bins, .column = arguments[0], .count = strtoull(arguments[1], NULL, 10)};
    bins.low = strtod(arguments[2], NULL);
    bins.high = strtod(arguments[3], NULL);
    bins.edges = calloc(bins.count + 1, sizeof(double));
    return bins;
}

static void pair(const char *name, const uint64_t counts[2]) { printf("%s %" PRIu64 " %" PRIu64 "\n", name, counts[0], counts[1]); }

static void show_edges(const turbidite_bins *axis, uint64_t count) {
    for (uint64_t i = 0; count && i <= count; i++) {
        printf("%s%.17g", i ? " " : "", axis->edges[i]);
    }
    printf("\n");
}

static void count(turbidite_reader *reader, int argc, char **argv) {
    int bounds = strcmp(argv[2], "bounds") == 0;
    turbidite_request request = {sizeof request, .where = or_null(argv[3]), .epochs = or_null(argv[4])};
    turbidite_bins x = bins(argv + 5), y = {0};
    int has_y = argc == 13;
    CHECK(argc == 9 || has_y);
    if (has_y) {
        y = bins(argv + 9);
    }
    size_t room = x.count * (has_y ? y.count : 1);
    if (!bounds && strcmp(argv[2], "exact") != 0) {
        x.level = (uint32_t)strtoul(argv[2], NULL, 10);
        x.errors = calloc(room, sizeof *x.errors);
    }
    uint64_t *least = calloc(room, sizeof *least), *most = calloc(room, sizeof *most);
    turbidite_histogram_metrics metrics = {.struct_size = sizeof metrics};
    CHECK(turbidite_histogram(reader, &request, &x, has_y ? &y : NULL, least, bounds ? most : NULL, &metrics) == TURBIDITE_OK);
    printf("epochs %u\n", metrics.epochs);
    pair("rows", metrics.rows);
    pair("nan", metrics.nan);
    pair("infinite", metrics.infinite);
    pair("outside", metrics.outside);
    pair("bins", metrics.bins);
    CHECK(turbidite_reader_bytes_read(reader) == metrics.bytes_read);
    show_edges(&x, metrics.bins[0]);
    show_edges(&y, metrics.bins[1]);
    for (uint64_t i = 0; i < metrics.bins[0] * (has_y ? metrics.bins[1] : 1); i++) {
        if (x.errors) {
            printf("%" PRIu64 " %.17g\n", least[i], x.errors[i]);
        } else {
            printf("%" PRIu64 " %" PRIu64 "\n", least[i], bounds ? most[i] : least[i]);
        }
    }
    free(least);
    free(most);
    free(x.edges);
    free(x.errors);
    free(y.edges);
}

static void mistakes(turbidite_reader *reader) {
    uint64_t least[64];
    turbidite_bins x = {sizeof x, .column = "energy"};
    CHECK(turbidite_histogram(NULL, NULL, &x, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(turbidite_histogram(reader, NULL, NULL, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "x"));
    CHECK(turbidite_histogram(reader, NULL, &x, NULL, NULL, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "least"));
    turbidite_histogram_metrics metrics = {0};
    CHECK(turbidite_histogram(reader, NULL, &x, NULL, least, NULL, &metrics) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "turbidite_histogram_metrics"));
    turbidite_request shared = {sizeof shared, .share = 1, .shares = 2};
    CHECK(turbidite_histogram(reader, &shared, &x, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "no shares"));
    turbidite_bins unset = {0, .column = "energy"};
    CHECK(turbidite_histogram(reader, NULL, &unset, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "turbidite_bins"));
    turbidite_bins nameless = {.struct_size = sizeof nameless}, unknown = {sizeof unknown, .column = "enrgy"};
    CHECK(turbidite_histogram(reader, NULL, &nameless, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(turbidite_histogram(reader, NULL, &unknown, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "enrgy"));
    turbidite_bins reversed = {sizeof reversed, .column = "energy", .low = 2, .high = 1};
    CHECK(turbidite_histogram(reader, NULL, &reversed, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    turbidite_bins many = {sizeof many, .column = "energy", .count = UINT64_MAX};
    CHECK(turbidite_histogram(reader, NULL, &many, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(turbidite_histogram(reader, NULL, &x, &many, least, least, NULL) == TURBIDITE_USAGE);
    turbidite_request elsewhere = {sizeof elsewhere, .epochs = "77"};
    CHECK(turbidite_histogram(reader, &elsewhere, &x, NULL, least, NULL, NULL) != TURBIDITE_OK);
    turbidite_bins few = {sizeof few, .column = "i", .count = 64, .low = 1, .high = 4};
    CHECK(turbidite_histogram(reader, NULL, &few, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "4 of x"));
    double errors[64];
    turbidite_bins flat = {sizeof flat, .column = "energy", .errors = errors, .level = 1}, no_room = {sizeof no_room, .column = "energy", .level = 1};
    CHECK(turbidite_histogram(reader, NULL, &flat, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "no levels of detail"));
    CHECK(turbidite_histogram(reader, NULL, &flat, NULL, least, least, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "errors"));
    CHECK(turbidite_histogram(reader, NULL, &x, &flat, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(turbidite_histogram(reader, NULL, &no_room, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "no room for errors"));
    turbidite_bins poor = {sizeof poor, .column = "uz", .budget_bytes = 1}, rich = {sizeof rich, .column = "uz", .budget_bytes = 1000000000};
    CHECK(turbidite_histogram(reader, NULL, &poor, NULL, least, NULL, NULL) == TURBIDITE_USAGE);
    CHECK(strstr(turbidite_last_error(), "budget: exact numbers would read up to "));
    CHECK(turbidite_histogram(reader, NULL, &rich, NULL, least, NULL, NULL) == TURBIDITE_OK);
    /* All defaults, without metrics. */
    CHECK(turbidite_histogram(reader, NULL, &x, NULL, least, NULL, NULL) == TURBIDITE_OK);
}

int main(int argc, char **argv) {
    turbidite_reader *reader;
    CHECK(argc >= 3 && turbidite_reader_open(argv[1], &reader) == TURBIDITE_OK);
    if (strcmp(argv[2], "mistakes") == 0) {
        mistakes(reader);
    } else {
        count(reader, argc, argv);
    }
    turbidite_reader_close(reader);
    return 0;
}
