/* Finds MPI's functions by name, and identifies the running MPI. See bindings.h. */
#include "bindings.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library through which MPI was found, if MPI is visible only to that library. It stays open, so that MPI is not
 * unloaded before the process ends. */
static void *with_mpi;

/* Returns the library that contains `caller`, for lookups in it and its dependencies, or NULL if the program itself
 * contains `caller`. */
static void *library_of(void *caller)
{
    Dl_info known;
    return dladdr(caller, &known) == 0 ? NULL : dlopen(known.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

/* Finds a binding. If the calling library was loaded by dlopen, for example as an extension of Python, the binding is
 * visible only to that library. The calling library is not always known, since a compiler may call our function by a
 * jump. */
static void *find_binding(const char *name, void *caller)
{
    void *next = dlsym(RTLD_NEXT, name);
    void *library = next == NULL && caller != NULL ? library_of(caller) : NULL;
    if (library != NULL && (next = dlsym(library, name)) != NULL && with_mpi == NULL)
        with_mpi = library;
    else if (library != NULL)
        dlclose(library);
    if (next == NULL && with_mpi != NULL)
        next = dlsym(with_mpi, name);
    return next;
}

void *next_binding(const char *name, void *caller)
{
    void *next = find_binding(name, caller);
    if (next == NULL) {
        /* No function can perform the call, and the program expects no error. */
        fprintf(stderr,
                "turbidite: cannot find the library that has %s; do not preload libturbidite_preload_mpi.so\n", name);
        abort();
    }
    return next;
}

/* MPI_MAX_LIBRARY_VERSION_STRING of MPICH and of MPI 5's ABI. Open MPI's value is 256. */
enum { VERSION_BYTES = 8192 };

/* Copies the first line of a text, with each run of blanks reduced to one blank. */
static void copy_line(char *line, size_t bytes, const char *text)
{
    size_t length = 0;
    for (; *text != '\0' && *text != '\n' && length + 1 < bytes; text++) {
        bool blank = isspace((unsigned char)*text);
        if (!blank || (length > 0 && line[length - 1] != ' '))
            line[length++] = blank ? ' ' : *text;
    }
    line[length] = '\0';
}

struct running_mpi running_mpi(void)
{
    struct running_mpi mpi = {.family = FAMILY_UNKNOWN};
    static char version[VERSION_BYTES];
    int (*get_version)(char *, int *), (*get_abi)(int *, int *);
    int length, major = -1, minor;
    *(void **)&get_version = find_binding("PMPI_Get_library_version", NULL);
    *(void **)&get_abi = find_binding("PMPI_Abi_get_version", NULL);
    if (get_version == NULL || get_version(version, &length) != 0)
        version[0] = '\0';
    /* The function returns -1 in libraries whose calls do not have MPI 5's ABI. */
    if (get_abi != NULL && get_abi(&major, &minor) != 0)
        major = -1;
    Dl_info library;
    void *init = find_binding("PMPI_Init", NULL);
    const char *file = init != NULL && dladdr(init, &library) != 0 ? library.dli_fname : NULL;
    mpi.family = mpi_family_of(version, major, file);
    /* An MPI with an unknown name is identified by variables to which macros of mpi.h refer. Every library with that
     * ABI defines these variables. */
    if (mpi.family == FAMILY_UNKNOWN && find_binding("ompi_mpi_comm_world", NULL) != NULL)
        mpi.family = FAMILY_OPEN_MPI;
    else if (mpi.family == FAMILY_UNKNOWN && find_binding("MPIR_Dup_fn", NULL) != NULL)
        mpi.family = FAMILY_MPICH;
    copy_line(mpi.version, sizeof mpi.version, version);
    return mpi;
}

/* Finds a variable of MPI. The linker may have placed it in the program, which precedes this library in the search
 * order. */
static void *find_variable(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found == NULL ? find_binding(name, NULL) : found;
}

/* Returns MPI_COMM_WORLD, whose value depends on the ABI, or 0 if it is unknown. */
static mpi_handle world_of(enum mpi_family family)
{
    switch (family) {
    case FAMILY_MPICH:
        return 0x44000000;
    case FAMILY_OPEN_MPI:
        return (mpi_handle)find_variable("ompi_mpi_comm_world");
    case FAMILY_STANDARD:
        return 0x101;
    case FAMILY_UNKNOWN:
        break;
    }
    return 0;
}

bool is_first_rank(const struct running_mpi *mpi)
{
    static const char *const launchers[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK",
                                            "SLURM_PROCID"};
    int (*comm_rank)(mpi_handle, int *);
    int rank;
    mpi_handle world = world_of(mpi->family);
    *(void **)&comm_rank = find_binding("PMPI_Comm_rank", NULL);
    if (world != 0 && comm_rank != NULL && comm_rank(world, &rank) == 0)
        return rank == 0;
    for (size_t index = 0; index < sizeof launchers / sizeof *launchers; index++) {
        const char *said = getenv(launchers[index]);
        if (said != NULL)
            return strcmp(said, "0") == 0;
    }
    return true;
}
