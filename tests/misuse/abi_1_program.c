/* A program as it was compiled with turbidite.h of ABI version 1, in which views had no types. It ignores statuses. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct turbidite_column {
    const char *name;
    int32_t type;
    uint32_t width;
    const char *unit;
} turbidite_column;
typedef struct turbidite_view {
    const void *data;
    size_t stride;
} turbidite_view;
typedef struct turbidite_dataset turbidite_dataset;
typedef struct turbidite_reader turbidite_reader;

int32_t turbidite_open(const char *path, const turbidite_column *columns, size_t column_count, const char *key,
                       const void *options, const void *transport, turbidite_dataset **dataset);
int32_t turbidite_open_indexed(const char *path, const turbidite_column *columns, size_t column_count, const char *key,
                               const char *const *indexes, size_t index_count, const void *options,
                               const void *const *transports, turbidite_dataset **dataset);
void turbidite_options_init(void *options);
int32_t turbidite_begin_epoch(turbidite_dataset *dataset, uint64_t epoch);
int32_t turbidite_append(turbidite_dataset *dataset, const turbidite_view *columns, size_t column_count, size_t rows);
int32_t turbidite_end_epoch(turbidite_dataset *dataset, void *metrics);
int32_t turbidite_close(turbidite_dataset *dataset);
int32_t turbidite_reader_open(const char *path, turbidite_reader **reader);
const char *turbidite_last_error(void);

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    static float energies[100];
    uint64_t options[16];
    turbidite_column column = {"energy", 1, 0, NULL};
    turbidite_view view = {energies, sizeof energies[0]};
    turbidite_dataset *dataset = (turbidite_dataset *)energies;
    turbidite_options_init(options);
    int32_t opened = turbidite_open(argv[1], &column, 1, "energy", options, NULL, &dataset);
    turbidite_begin_epoch(dataset, 1);
    turbidite_append(dataset, &view, 1, 100);
    turbidite_end_epoch(dataset, NULL);
    turbidite_close(dataset);
    turbidite_dataset *indexed = (turbidite_dataset *)energies;
    turbidite_reader *reader = (turbidite_reader *)energies;
    int32_t with_indexes = turbidite_open_indexed(argv[1], &column, 1, "energy", NULL, 0, NULL, NULL, &indexed);
    int32_t read = turbidite_reader_open(argv[1], &reader);
    printf("%d %d %d %d\n", opened, with_indexes, read, dataset == NULL && indexed == NULL && reader == NULL);
    return 0;
}
