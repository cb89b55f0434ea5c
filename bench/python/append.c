/*
 * Appends arrays through the C interface, as append.py does through the Python package.
 *
 * Usage: append DATASET COLUMNS EPOCHS ROWS_PER_APPEND
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "turbidite.h"

enum { COLUMNS = 9, VALUE_BYTES = 4, MAX_EPOCHS = 1000 };

static void check(turbidite_status status) {
    if (status != TURBIDITE_OK) {
        fprintf(stderr, "append: %s\n", turbidite_last_error());
        exit(1);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: append DATASET COLUMNS EPOCHS ROWS_PER_APPEND\n");
        return 2;
    }
    int epochs = atoi(argv[3]);
    size_t step = (size_t)atol(argv[4]);
    struct stat status;
    int file = open(argv[2], O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0 || epochs < 1 || epochs > MAX_EPOCHS || step < 1) return 2;
    size_t bytes = (size_t)status.st_size, rows = bytes / COLUMNS / VALUE_BYTES;
    char *content = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (content == MAP_FAILED) return 1;

    static const char *const names[COLUMNS] = {"dx", "dy", "dz", "i", "ux", "uy", "uz", "w", "energy"};
    turbidite_column columns[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = (turbidite_column){names[i], i == 3 ? TURBIDITE_I32 : TURBIDITE_F32, 0, NULL};
    turbidite_dataset *dataset;
    check(turbidite_open(argv[1], columns, COLUMNS, "energy", NULL, NULL, &dataset));
    double epoch_s[MAX_EPOCHS];
    for (int epoch = 0; epoch < epochs; epoch++) {
        double began = now();
        check(turbidite_begin_epoch(dataset, (uint64_t)epoch));
        for (size_t first = 0; first < rows; first += step) {
            turbidite_view views[COLUMNS];
            for (size_t i = 0; i < COLUMNS; i++)
                views[i] = turbidite_column_values(&columns[i], content + (i * rows + first) * VALUE_BYTES, VALUE_BYTES);
            check(turbidite_append(dataset, views, COLUMNS, rows - first < step ? rows - first : step));
        }
        check(turbidite_end_epoch(dataset, NULL));
        epoch_s[epoch] = now() - began;
    }
    check(turbidite_close(dataset));
    printf("{\"epoch_s\": [");
    for (int i = 0; i < epochs; i++) printf("%s%.6f", i ? ", " : "", epoch_s[i]);
    printf("]}\n");
    return 0;
}
