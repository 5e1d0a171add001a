/* Checks of clients of libpmix, and the process itself. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            fflush(NULL);                                                      \
            PMIx_Abort(97, "a check failed", NULL, 0);                         \
            exit(97);                                                          \
        }                                                                      \
    } while (0)

#include "say.h"

/* A call that must return this status. */
#define RETURNS(status, call)                                                                      \
    do {                                                                                           \
        pmix_status_t got_ = (call);                                                               \
        if (got_ != (status))                                                                      \
            fprintf(stderr, "%s:%d: %d and not %d\n", __FILE__, __LINE__, got_, (pmix_status_t)(status)); \
        CHECK(got_ == (status));                                                                   \
    } while (0)
#define OK(call) RETURNS(PMIX_SUCCESS, call)

static pmix_proc_t me;
static uint32_t size;

static pmix_proc_t rank_of(uint32_t rank)
{
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, me.nspace, rank);
    return proc;
}

static void fence(void)
{
    pmix_proc_t all = rank_of(PMIX_RANK_WILDCARD);
    OK(PMIx_Fence(&all, 1, NULL, 0));
}

/* Joins the job. */
static void join(void)
{
    OK(PMIx_Init(&me, NULL, 0));
    pmix_proc_t job = rank_of(PMIX_RANK_WILDCARD);
    pmix_value_t *value;
    OK(PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value));
    size = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
}
