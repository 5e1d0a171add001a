/* Checks for programs that use libhydrant_mpi alone: a wrong result ends the program with file and line. */
#include "hydrant_mpi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "say.h"

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            exit(97);                                                          \
        }                                                                      \
    } while (0)

#define OK(call) CHECK((call) == MPI_SUCCESS)
