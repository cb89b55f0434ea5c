/* Prints the family that this test was compiled for, and then the families of the MPIs that the arguments describe.
 * Each MPI has three arguments: VERSION ABI_MAJOR LIBRARY ("" for no library). */
#include <stdio.h>
#include <stdlib.h>

#include "family.h"

int main(int count, char **arguments)
{
    puts(mpi_family_name(mpi_family_built));
    for (int index = 1; index + 2 < count; index += 3) {
        const char *library = arguments[index + 2][0] == '\0' ? NULL : arguments[index + 2];
        puts(mpi_family_name(mpi_family_of(arguments[index], atoi(arguments[index + 1]), library)));
    }
    return 0;
}
