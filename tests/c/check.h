/* Shared by the test programs of one process. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "turbidite.h"

/* Ends the program with the last error unless the condition holds. */
#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition,   \
                    turbidite_last_error());                                                          \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

#endif
