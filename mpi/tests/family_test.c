/* Prints the family of MPIs that say of themselves what stands in the arguments: VERSION ABI_MAJOR LIBRARY, three for
 * each ("" for no library), and first the one this was compiled for. */
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
