/*
 * Families of MPIs. Programs and libraries built for one MPI run with any other MPI of its family, in any version.
 * Between families, handles differ in size and constants differ in value. Only `mpi_family_built` depends on mpi.h.
 */
#ifndef TURBIDITE_FAMILY_H
#define TURBIDITE_FAMILY_H

enum mpi_family {
    FAMILY_UNKNOWN,
    FAMILY_MPICH, /* includes Intel MPI, Cray MPICH, MVAPICH, ParaStation MPI */
    FAMILY_OPEN_MPI,
    FAMILY_STANDARD, /* the ABI of MPI 5, which MPICH and Open MPI provide beside their own */
};

/* The family of the MPI that this code was compiled for. */
extern const enum mpi_family mpi_family_built;

/* Returns the family of an MPI. `version` is the string from MPI_Get_library_version. `abi_major` is the major version
 * from MPI_Abi_get_version, or -1 without that function. `library` is the file that contains MPI's functions, or
 * NULL. */
enum mpi_family mpi_family_of(const char *version, int abi_major, const char *library);

/* Returns the family's name for messages. */
const char *mpi_family_name(enum mpi_family family);

#endif
