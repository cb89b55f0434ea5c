/* Records the failures of a connection. See connection.h. */
#include <stdio.h>

#include "connection.h"

void describe_error(char *text, size_t bytes, const char *what, int error)
{
    char reason[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    if (MPI_Error_string(error, reason, &length) != MPI_SUCCESS)
        snprintf(reason, sizeof reason, "MPI error %d", error);
    snprintf(text, bytes, "%s: %s", what, reason);
}

int32_t connection_refuse(struct connection *connection, const char *what, int error)
{
    int class = MPI_ERR_OTHER;
    describe_error(connection->description, sizeof connection->description, what, error);
    if (MPI_Error_class(error, &class) != MPI_SUCCESS || class <= 0)
        class = MPI_ERR_OTHER;
    return -class;
}

int32_t connection_fail(struct connection *connection, const char *what, int error)
{
    if (connection->failure == 0)
        connection->failure = connection_refuse(connection, what, error);
    return connection->failure;
}
