/*
 * Another tool in LD_PRELOAD, which wraps functions in the same way as Darshan. It wraps initialisation and
 * finalisation of MPI under both names and passes them to the next PMPI_X. It passes file operations to the next
 * function of the same name. It prints the calls that it has intercepted.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#define EXPORTED __attribute__((visibility("default")))
#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))

static int starts, ends, opened, closed, rank;

static int begun(int answer)
{
    starts++;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return answer;
}

EXPORTED int MPI_Init(int *count, char ***arguments)
{
    return begun(NEXT(int (*)(int *, char ***), "PMPI_Init")(count, arguments));
}

EXPORTED int MPI_Init_thread(int *count, char ***arguments, int required, int *provided)
{
    return begun(NEXT(int (*)(int *, char ***, int, int *), "PMPI_Init_thread")(count, arguments, required, provided));
}

EXPORTED int MPI_Finalize(void)
{
    ends++;
    if (rank == 0)
        fprintf(stderr, "tool: starts %d ends %d opened %d closed %d\n", starts, ends, opened, closed);
    return NEXT(int (*)(void), "PMPI_Finalize")();
}

/* Fortran bindings that call PMPI_X need these aliases. */
EXPORTED int PMPI_Init(int *count, char ***arguments) __attribute__((alias("MPI_Init")));
EXPORTED int PMPI_Init_thread(int *count, char ***arguments, int required, int *provided)
    __attribute__((alias("MPI_Init_thread")));
EXPORTED int PMPI_Finalize(void) __attribute__((alias("MPI_Finalize")));

EXPORTED int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    opened++;
    return NEXT(int (*)(const char *, int, ...), "open")(path, flags, mode);
}

EXPORTED FILE *fopen(const char *path, const char *mode)
{
    opened++;
    return NEXT(FILE * (*)(const char *, const char *), "fopen")(path, mode);
}

EXPORTED int fclose(FILE *stream)
{
    closed++;
    return NEXT(int (*)(FILE *), "fclose")(stream);
}
