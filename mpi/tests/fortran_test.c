/*
 * Calls MPI as Fortran programs do, through fortran_stub.c. The test is otherwise like preload_test.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#define EXPECT(condition)                                                     \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "fortran_test.c:%d: %s\n", __LINE__, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                     \
        }                                                                     \
    } while (0)

void mpi_init_(MPI_Fint *error);
void mpi_finalize_(MPI_Fint *error);
void mpi_barrier_(MPI_Fint *communicator, MPI_Fint *error);
void mpi_barrier_f08_(MPI_Fint *communicator, MPI_Fint *error);
void mpi_bcast_(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *communicator,
                MPI_Fint *error);
void mpi_allreduce_(void *from, void *to, MPI_Fint *count, MPI_Fint *type, MPI_Fint *operation,
                    MPI_Fint *communicator, MPI_Fint *error);

int main(void)
{
    MPI_Fint error = MPI_ERR_OTHER;
    mpi_init_(&error);
    EXPECT(error == MPI_SUCCESS);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Fint world = MPI_Comm_c2f(MPI_COMM_WORLD), self = MPI_Comm_c2f(MPI_COMM_SELF), type = MPI_Type_c2f(MPI_INT);
    MPI_Fint one = 1, root = 0, maximum = MPI_Op_c2f(MPI_MAX);
    int value = rank == 0 ? 7 : 0, largest = 0;
    mpi_barrier_(&world, &error);
    EXPECT(error == MPI_SUCCESS);
    mpi_barrier_f08_(&world, &error);
    mpi_bcast_(&value, &one, &type, &root, &world, &error);
    EXPECT(error == MPI_SUCCESS && value == 7);
    mpi_allreduce_(&rank, &largest, &one, &type, &maximum, &world, &error);
    EXPECT(error == MPI_SUCCESS && largest == ranks - 1);
    mpi_barrier_(&self, &error);
    if (rank == 0)
        printf("called: 4\n");
    fflush(stdout);
    mpi_finalize_(&error);
    return error != MPI_SUCCESS;
}
