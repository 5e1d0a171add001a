/* Checks for MPI programs: an MPI error or a wrong result ends the program with file and line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "say.h"

#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);        \
            fflush(NULL);                                                             \
            MPI_Abort(MPI_COMM_WORLD, 97);                                            \
        }                                                                             \
    } while (0)

/* A call that must succeed, with any error handler. */
#define OK(call) CHECK((call) == MPI_SUCCESS)

static inline int rank_in(MPI_Comm comm)
{
    int rank;
    OK(MPI_Comm_rank(comm, &rank));
    return rank;
}

static inline int size_of(MPI_Comm comm)
{
    int size;
    OK(MPI_Comm_size(comm, &size));
    return size;
}

/* An integer attribute of MPI_COMM_WORLD, or -1 if it is not set. */
static inline int attribute(int key)
{
    int *value, set;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &set));
    return set ? *value : -1;
}
