/*
 * Families of MPIs: within one family, programs and libraries of one MPI run with another, whatever the version.
 * Between two, handles differ in size and constants in value. Only `mpi_family_built` depends on an mpi.h.
 */
#ifndef TURBIDITE_FAMILY_H
#define TURBIDITE_FAMILY_H

enum mpi_family {
    FAMILY_UNKNOWN,
    FAMILY_MPICH, /* with Intel MPI, Cray MPICH, MVAPICH, ParaStation MPI */
    FAMILY_OPEN_MPI,
    FAMILY_STANDARD, /* the ABI of MPI 5, which MPICH and Open MPI offer beside their own */
};

/* The family of the MPI that this was compiled for. */
extern const enum mpi_family mpi_family_built;

/* Returns the family of an MPI: `version` is the text of MPI_Get_library_version, `abi_major` the number of
 * MPI_Abi_get_version (-1 without that function), `library` the file that has the calls, or NULL. */
enum mpi_family mpi_family_of(const char *version, int abi_major, const char *library);

/* Returns the family's name for users. */
const char *mpi_family_name(enum mpi_family family);

#endif
