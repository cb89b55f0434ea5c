/*
 * Determines the node of every rank. Every rank determines its leader, which is the lowest rank of its node. Nodes are
 * numbered in the order of their leaders. All collectives are nonblocking and completed immediately, since
 * libturbidite_preload_mpi reports blocking collectives.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "connection.h"

static int wait_for(int error, MPI_Request *request)
{
    return error != MPI_SUCCESS ? error : MPI_Wait(request, MPI_STATUS_IGNORE);
}

/* Parses one number below 2^31 and advances past it. */
static bool read_number(const char **text, uint32_t *number)
{
    if (**text < '0' || **text > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long value = strtoul(*text, &end, 10);
    *text = end;
    *number = (uint32_t)value;
    return errno == 0 && value <= INT_MAX;
}

/* Parses leaders from TURBIDITE_NODES, which contains one number per rank. Ranks with equal numbers are on one node. */
static bool leaders_of_list(const char *text, uint32_t *leaders, uint32_t ranks)
{
    uint32_t *labels = malloc(ranks * sizeof *labels);
    bool read = labels != NULL;
    for (uint32_t rank = 0; read && rank < ranks; rank++) {
        read = read_number(&text, &labels[rank]) && *text == (rank + 1 < ranks ? ',' : '\0');
        text += read && rank + 1 < ranks;
        for (leaders[rank] = 0; read && labels[leaders[rank]] != labels[rank];)
            leaders[rank]++;
    }
    free(labels);
    return read;
}

/* Reads leaders from the environment. Returns 0 if they are unset, 1 if found, -1 if invalid. */
static int leaders_of_environment(uint32_t *leaders, uint32_t ranks)
{
    const char *list = getenv("TURBIDITE_NODES");
    if (list != NULL && *list != '\0')
        return leaders_of_list(list, leaders, ranks) ? 1 : -1;
    const char *text = getenv("TURBIDITE_RANKS_PER_NODE");
    if (text == NULL || *text == '\0')
        return 0;
    uint32_t per_node;
    if (!read_number(&text, &per_node) || *text != '\0' || per_node == 0)
        return -1;
    for (uint32_t rank = 0; rank < ranks; rank++)
        leaders[rank] = rank - rank % per_node;
    return 1;
}

/* Determines the lowest rank that shares memory with this rank. */
static int find_leader(const struct connection *connection, uint32_t *leader)
{
    MPI_Comm node;
    MPI_Request request;
    int rank = (int)connection->transport.rank;
    int error = MPI_Comm_split_type(connection->communicator, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    if (error != MPI_SUCCESS)
        return error;
    /* The communicator is ordered by rank, so its first rank is the lowest. */
    *leader = connection->transport.rank;
    error = wait_for(MPI_Ibcast(leader, 1, MPI_UINT32_T, 0, node, &request), &request);
    int freed = MPI_Comm_free(&node);
    return error != MPI_SUCCESS ? error : freed;
}

int32_t topology_find(struct connection *connection, bool *several)
{
    MPI_Comm communicator = connection->communicator;
    uint32_t ranks = connection->transport.ranks;
    uint32_t *nodes = connection->nodes;
    MPI_Request request;
    /* Environments may differ between hosts, so rank 0's environment is used. */
    int said = connection->transport.rank == 0 ? leaders_of_environment(nodes, ranks) : 0;
    int error = wait_for(MPI_Ibcast(&said, 1, MPI_INT, 0, communicator, &request), &request);
    if (error == MPI_SUCCESS && said < 0)
        return connection_refuse(connection,
                                 "TURBIDITE_NODES must be one number per rank, separated by commas, and "
                                 "TURBIDITE_RANKS_PER_NODE a number",
                                 MPI_ERR_ARG);
    if (error == MPI_SUCCESS && said > 0)
        error = wait_for(MPI_Ibcast(nodes, (int)ranks, MPI_UINT32_T, 0, communicator, &request), &request);
    if (error == MPI_SUCCESS && said == 0) {
        uint32_t leader;
        error = find_leader(connection, &leader);
        if (error == MPI_SUCCESS)
            error = wait_for(MPI_Iallgather(&leader, 1, MPI_UINT32_T, nodes, 1, MPI_UINT32_T, communicator, &request),
                             &request);
    }
    if (error != MPI_SUCCESS)
        return connection_fail(connection, "finding the nodes of the ranks", error);
    /* Converts leaders to node numbers. A leader precedes the other ranks of its node. */
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        nodes[rank] = nodes[rank] == rank ? count++ : nodes[nodes[rank]];
    *several = count > 1;
    return 0;
}
