/* For programs whose only MPI library is libhydrant_mpi: wrong results end them with the place. */
#include "hydrant_mpi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            exit(97);                                                          \
        }                                                                      \
    } while (0)

#define OK(call) CHECK((call) == MPI_SUCCESS)

#define SAY(...)                                                      \
    do {                                                              \
        char said_[4096];                                             \
        int length_ = snprintf(said_, sizeof said_ - 1, __VA_ARGS__); \
        CHECK(length_ >= 0 && length_ < (int)sizeof said_ - 1);       \
        said_[length_++] = '\n';                                      \
        CHECK(write(1, said_, length_) == length_);                   \
    } while (0)
