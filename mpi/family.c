/* Identifies the family of an MPI from its version string, its ABI and its library. See family.h. */
#include <stddef.h>
#include <string.h>

#include "family.h"

/* Substrings of the version string's first line. The first match determines the family. */
static const struct {
    const char *part;
    enum mpi_family family;
} known[] = {
    /* MPItrampoline wraps any MPI and has its own ABI. Its version string may contain the name of the wrapped MPI. */
    {"MPItrampoline", FAMILY_UNKNOWN},
    {"Open MPI", FAMILY_OPEN_MPI},
    {"OpenMPI", FAMILY_OPEN_MPI},
    {"Spectrum MPI", FAMILY_OPEN_MPI},
    {"FUJITSU MPI", FAMILY_OPEN_MPI},
    /* The version strings of Cray MPICH and MVAPICH contain "MPICH", but some of MVAPICH's contain only "MVAPICH". */
    {"MPICH", FAMILY_MPICH},
    {"MVAPICH", FAMILY_MPICH},
    {"Intel(R) MPI Library", FAMILY_MPICH},
    {"ParaStation MPI", FAMILY_MPICH},
};

enum mpi_family mpi_family_of(const char *version, int abi_major, const char *library)
{
    const char *slash = library == NULL ? NULL : strrchr(library, '/');
    const char *file = slash == NULL ? library : slash + 1;
    /* MPICH 4.3 has the library but not the function. The MPI standard defines the library's name. */
    if (abi_major >= 0 || (file != NULL && strncmp(file, "libmpi_abi.", 11) == 0))
        return FAMILY_STANDARD;
    size_t line = strcspn(version, "\n");
    for (size_t index = 0; index < sizeof known / sizeof *known; index++) {
        const char *found = strstr(version, known[index].part);
        if (found != NULL && found < version + line)
            return known[index].family;
    }
    return FAMILY_UNKNOWN;
}

const char *mpi_family_name(enum mpi_family family)
{
    switch (family) {
    case FAMILY_MPICH:
        return "MPICH";
    case FAMILY_OPEN_MPI:
        return "Open MPI";
    case FAMILY_STANDARD:
        return "MPI 5's standard";
    case FAMILY_UNKNOWN:
        break;
    }
    return "an unknown MPI";
}
