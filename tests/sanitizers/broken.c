/* A program of one rank with one error of the kind that AddressSanitizer has to find: broken DATASET KIND. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "turbidite.h"

enum { COUNT = 1000 };

int main(int count, char **arguments) {
    static const turbidite_column COLUMNS[] = {{"key", TURBIDITE_F64, 0, NULL}};
    const char *kind = count == 3 ? arguments[2] : "";
    turbidite_dataset *dataset;
    if (turbidite_open(arguments[1], COLUMNS, 1, "key", NULL, NULL, &dataset) != TURBIDITE_OK) return 1;
    double *keys = calloc(COUNT, sizeof *keys);
    if (turbidite_begin_epoch(dataset, 0) != TURBIDITE_OK) return 1;
    /* One record more than there is, read inside of the library. */
    if (turbidite_append_rows(dataset, keys, sizeof *keys, COUNT + (strcmp(kind, "overrun") == 0)) != TURBIDITE_OK) return 1;
    free(keys);
    turbidite_epoch_metrics *metrics = malloc(sizeof *metrics - 8);
    /* A struct that says to be larger than it is, written to by the library. */
    metrics->struct_size = sizeof *metrics - (strcmp(kind, "metrics") == 0 ? 0 : 8);
    if (turbidite_end_epoch(dataset, metrics) != TURBIDITE_OK) return 1;
    free(metrics);
    if (strcmp(kind, "leak") != 0) turbidite_close(dataset);
    if (strcmp(kind, "closed") == 0) turbidite_begin_epoch(dataset, 1);
    dataset = NULL;
    puts("ok");
    return 0;
}
