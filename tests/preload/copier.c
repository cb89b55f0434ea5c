/*
 * Writes prepared dumps as a parallel simulation does: copier SOURCE OUT EPOCHS [FIRST [kill]].
 *
 * In each epoch from FIRST on, or else from 1, every rank copies SOURCE/E.<epoch>/rows.<rank> to OUT, and waits for the
 * others. With kill, the last rank dies in the middle of the last epoch.
 */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "copier: %s: %s\n", what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static FILE *file(const char *folder, int epoch, int rank, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/E.%d/rows.%d", folder, epoch, rank);
    FILE *opened = fopen(path, mode);
    check(opened != NULL, path);
    return opened;
}

int main(int count, char **arguments)
{
    static char block[1 << 16];
    int rank, ranks;

    MPI_Init(&count, &arguments);
    check(count >= 4 && count <= 6, "usage: copier SOURCE OUT EPOCHS [FIRST [kill]]");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int last = atoi(arguments[3]), dies = count == 6 && rank == ranks - 1;
    for (int epoch = count > 4 ? atoi(arguments[4]) : 1; epoch <= last; epoch++) {
        FILE *from = file(arguments[1], epoch, rank, "rb"), *to = file(arguments[2], epoch, rank, "wb");
        for (size_t bytes; (bytes = fread(block, 1, sizeof block, from)) > 0;)
            check(fwrite(block, 1, bytes, to) == bytes, "write");
        if (dies && epoch == last)
            raise(SIGKILL);
        check(fclose(from) == 0 && fclose(to) == 0, "close");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
