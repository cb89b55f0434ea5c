/* Real particle dumps as a source of records; see source.h. */
#define _POSIX_C_SOURCE 200809L /* opendir, fseeko */

#include "source.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare_steps(const void *left, const void *right)
{
    int a = *(const int *)left, b = *(const int *)right;
    return (a > b) - (a < b);
}

/* All steps of the folder, in ascending order. */
static int list_steps(const char *folder, struct steps *steps)
{
    DIR *directory = opendir(folder);
    if (!directory) {
        fprintf(stderr, "cannot list %s: %s\n", folder, strerror(errno));
        return -1;
    }
    steps->count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) && steps->count < STEPS_MOST;) {
        int step, length = 0;
        if (sscanf(entry->d_name, "T.%9d%n", &step, &length) == 1 && entry->d_name[length] == '\0')
            steps->list[steps->count++] = step;
    }
    closedir(directory);
    qsort(steps->list, (size_t)steps->count, sizeof steps->list[0], compare_steps);
    if (steps->count == 0) {
        fprintf(stderr, "%s: no folders called T.<step>\n", folder);
        return -1;
    }
    return 0;
}

int steps_find(const char *folder, const char *wanted, struct steps *steps)
{
    struct steps all;
    if (list_steps(folder, &all) != 0)
        return -1;
    if (!wanted) {
        *steps = all;
        return 0;
    }
    steps->count = 0;
    for (const char *text = wanted;;) {
        char *end;
        long step = strtol(text, &end, 10);
        int there = 0;
        for (int index = 0; index < all.count; index++)
            there |= all.list[index] == step;
        if (end == text || (*end && *end != ',') || !there || steps->count == STEPS_MOST) {
            fprintf(stderr, "%s: there is no step '%s'\n", folder, text);
            return -1;
        }
        steps->list[steps->count++] = (int)step;
        if (!*end)
            return 0;
        text = end + 1;
    }
}

/* Opens a file of the step and reads its header. NULL with errno 0 when there is no such file. */
static FILE *open_file(const struct piece *piece, int file_rank, struct vpic_header *header)
{
    char path[PATH_BYTES];
    unsigned char packed[VPIC_HEADER_BYTES];
    snprintf(path, sizeof path, "%s/T.%d/eparticle.%d.%d", piece->folder, piece->step, piece->step, file_rank);
    FILE *file = fopen(path, "r");
    if (!file) {
        if (errno == ENOENT)
            errno = 0;
        else
            fprintf(stderr, "cannot open %s: %s\n", path, strerror(errno));
        return NULL;
    }
    if (fread(packed, sizeof packed, 1, file) != 1 || vpic_header_unpack(packed, header) != 0 ||
        header->element_bytes != RECORD_BYTES) {
        fprintf(stderr, "%s: not a dump of particles of %d bytes\n", path, RECORD_BYTES);
        fclose(file);
        errno = EINVAL;
        return NULL;
    }
    return file;
}

/* The number of the step's file that holds a record. */
static int file_of(const struct piece *piece, int64_t record)
{
    int file = 0;
    while (file + 1 < piece->files && record >= piece->ends[file])
        file++;
    return file;
}

int piece_open(struct piece *piece, const char *folder, int step, int rank, int ranks)
{
    struct vpic_header header;
    int64_t total = 0;
    *piece = (struct piece){.folder = folder, .step = step};
    while (piece->files < SOURCE_FILES_MOST) {
        FILE *file = open_file(piece, piece->files, &header);
        if (!file && errno == 0)
            break;
        if (!file || fclose(file) != 0)
            return -1;
        total += header.count;
        piece->ends[piece->files++] = total;
    }
    if (piece->files == 0) {
        fprintf(stderr, "%s: step %d has no files\n", folder, step);
        return -1;
    }
    piece->next = total * rank / ranks;
    piece->end = total * (rank + 1) / ranks;
    FILE *first = open_file(piece, file_of(piece, piece->next), &piece->header);
    return first && fclose(first) == 0 ? 0 : -1;
}

int piece_read(struct piece *piece, unsigned char *records, int most)
{
    if (piece->next == piece->end)
        return 0;
    int number = file_of(piece, piece->next);
    int64_t begin = number == 0 ? 0 : piece->ends[number - 1];
    int64_t end = piece->ends[number] < piece->end ? piece->ends[number] : piece->end;
    int64_t count = end - piece->next < most ? end - piece->next : most;
    struct vpic_header header;
    FILE *file = open_file(piece, number, &header);
    if (!file)
        return -1;
    int failed = fseeko(file, (off_t)(VPIC_HEADER_BYTES + (piece->next - begin) * RECORD_BYTES), SEEK_SET) != 0 ||
                 fread(records, RECORD_BYTES, (size_t)count, file) != (size_t)count;
    if (fclose(file) != 0 || failed) {
        fprintf(stderr, "%s: step %d, file %d is shorter than its header says\n", piece->folder, piece->step, number);
        return -1;
    }
    piece->next += count;
    return (int)count;
}
