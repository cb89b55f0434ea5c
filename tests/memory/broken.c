/* A program over MPI with one error of the kind that Valgrind has to find: broken KIND. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100 };

int main(int count, char **arguments)
{
    int rank, ranks;
    const char *kind = count > 1 ? arguments[1] : "";
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    int received[COUNT + 1];
    int *sent = calloc(COUNT, sizeof *sent);
    /* One number more than there is, read inside of MPI. */
    int wanted = strcmp(kind, "overrun") == 0 ? COUNT + 1 : COUNT;
    MPI_Sendrecv(sent, wanted, MPI_INT, to, 0, received, wanted, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (strcmp(kind, "leak") != 0)
        free(sent);
    sent = NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
