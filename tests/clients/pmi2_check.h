/* Checks for programs that use pmi2.h: a wrong result ends the program with file and line. */
#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "say.h"

static int spawned = -1, size = -1, rank = -1, appnum = -1;
static char jobid[256];

#define CHECK(what)                                                                             \
    do {                                                                                        \
        if (!(what)) {                                                                          \
            fprintf(stderr, "rank %d: %s:%d: not so: %s\n", rank, __FILE__, __LINE__, #what);   \
            exit(97);                                                                           \
        }                                                                                       \
    } while (0)

/* A call that must succeed. */
#define OK(call)                                                                                      \
    do {                                                                                              \
        int rc_ = (call);                                                                             \
        if (rc_ != PMI2_SUCCESS) {                                                                    \
            fprintf(stderr, "rank %d: %s:%d: %s gave %d\n", rank, __FILE__, __LINE__, #call, rc_);    \
            exit(97);                                                                                 \
        }                                                                                             \
    } while (0)

/* A call that must fail and leave the connection usable. */
#define FAILS(call)                                                                                    \
    do {                                                                                               \
        char id_[sizeof jobid];                                                                        \
        CHECK((call) != PMI2_SUCCESS);                                                                 \
        CHECK(PMI2_Job_GetId(id_, sizeof id_) == PMI2_SUCCESS && !strcmp(id_, jobid));                 \
    } while (0)

static inline void start(void)
{
    OK(PMI2_Init(&spawned, &size, &rank, &appnum));
    CHECK(PMI2_Initialized());
    OK(PMI2_Job_GetId(jobid, sizeof jobid));
}

/* The value of a key that must exist in the space of a job. */
static inline void check_value(const char *job, int hint, const char *key, const char *wanted)
{
    char value[PMI2_MAX_VALLEN + 1] = "";
    int length = -1;
    OK(PMI2_KVS_Get(job, hint, key, value, sizeof value, &length));
    CHECK(length == (int)strlen(wanted) && !strcmp(value, wanted));
}

/* Whether a key exists. */
static inline int has_key(const char *job, const char *key)
{
    char value[PMI2_MAX_VALLEN + 1] = "";
    int length = -1;
    return PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length) == PMI2_SUCCESS;
}
