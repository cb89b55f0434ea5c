/* A library that uses MPI, loaded by a program that does not use MPI. See plugin_host.c. */
#include <mpi.h>
#include <stdio.h>

int plugin_run(void)
{
    int rank;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS || MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS)
        return 1;
    for (int call = 0; call < 3; call++)
        MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("called: 3\n");
    fflush(stdout);
    return 0;
}

/* Optimised code jumps to MPI_Finalize, which then returns to the program directly. */
int plugin_end(void)
{
    return MPI_Finalize();
}
