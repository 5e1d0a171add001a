/* What clients of libpmix are told about hosts, processes and other jobs, and what is refused, one group a sub-command. Each
   rank checks its results and prints "rank R: NAME done". */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "pmix_check.h"

/* Ranks of a spawned job. */
#define CHILDREN 2

static pmix_value_t *value_of(const char *nspace, pmix_rank_t rank, const char *key, pmix_data_type_t type)
{
    pmix_proc_t proc;
    pmix_value_t *value;
    PMIX_LOAD_PROCID(&proc, nspace, rank);
    OK(PMIx_Get(&proc, key, NULL, 0, &value));
    CHECK(value->type == type);
    return value;
}

static uint32_t number_of(const char *nspace, pmix_rank_t rank, const char *key)
{
    pmix_value_t *value = value_of(nspace, rank, key, PMIX_UINT32);
    uint32_t number = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return number;
}

/* Attributes of the job, of this host, and of each rank. */
static void attributes(void)
{
    CHECK(number_of(me.nspace, PMIX_RANK_WILDCARD, PMIX_APP_SIZE) == size);
    pmix_value_t *first = value_of(me.nspace, PMIX_RANK_WILDCARD, PMIX_LOCALLDR, PMIX_PROC_RANK);
    pmix_value_t *value = value_of(me.nspace, PMIX_RANK_WILDCARD, PMIX_LOCAL_PROCS, PMIX_DATA_ARRAY);
    pmix_data_array_t *array = value->data.darray;
    pmix_proc_t *procs = array->array;
    CHECK(array->type == PMIX_PROC && array->size == number_of(me.nspace, PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE));
    for (size_t at = 0; at < array->size; at++)
        CHECK(strcmp(procs[at].nspace, me.nspace) == 0 && procs[at].rank == first->data.rank + at);
    PMIX_VALUE_RELEASE(value);
    PMIX_VALUE_RELEASE(first);
    for (uint32_t rank = 0; rank < size; rank++) {
        value = value_of(me.nspace, rank, PMIX_HOSTNAME, PMIX_STRING);
        SAY("rank %u: rank %u is on %s", me.rank, rank, value->data.string);
        PMIX_VALUE_RELEASE(value);
    }
    pmix_proc_t job = rank_of(PMIX_RANK_WILDCARD), self = rank_of(me.rank);
    pmix_status_t known = PMIx_Get(&job, PMIX_NODE_OVERSUBSCRIBED, NULL, 0, &value);
    CHECK(known == PMIX_SUCCESS || known == PMIX_ERR_NOT_FOUND);
    SAY("rank %u: oversubscribed: %s", me.rank, known == PMIX_SUCCESS ? "yes" : "no");
    RETURNS(PMIX_ERR_NOT_FOUND, PMIx_Get(&self, PMIX_PARENT_ID, NULL, 0, &value));
}

/* Rank 1 of the parent and all children have done what precedes. */
static void meet(const char *parent, const char *children)
{
    pmix_proc_t procs[2];
    PMIX_LOAD_PROCID(&procs[0], parent, 1);
    PMIX_LOAD_PROCID(&procs[1], children, PMIX_RANK_WILDCARD);
    OK(PMIx_Fence(procs, 2, NULL, 0));
}

static pmix_app_t children_of(char **argv)
{
    pmix_app_t app;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = argv[0];
    app.maxprocs = CHILDREN;
    app.argv = argv;
    return app;
}

/* A spawned job, whose attributes and data its parent reads without a connection. */
static void children(const char *program)
{
    if (me.rank != 1)
        return fence();
    char nspace[PMIX_MAX_NSLEN + 1];
    char *argv[] = {(char *)program, "child", me.nspace, NULL};
    pmix_app_t app = children_of(argv);
    /* The children get no place but their own. */
    setenv("PMIX_CARD", "of the parent", 1);
    app.env = environ;
    OK(PMIx_Spawn(NULL, 0, &app, 1, nspace));
    CHECK(number_of(nspace, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE) == CHILDREN);
    for (pmix_rank_t rank = 0; rank < CHILDREN; rank++)
        CHECK(number_of(nspace, rank, "card") == rank);
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, "children.read", "all", PMIX_STRING);
    OK(PMIx_Publish(&info, 1));
    /* What a process has published ends with its job. */
    meet(me.nspace, nspace);
    fence();
}

static atomic_int registered, ended;
static char spawned[PMIX_MAX_NSLEN + 1];
static int expected;

static void on_registered(pmix_status_t status, size_t handler, void *place)
{
    (void)handler, (void)place;
    CHECK(status == PMIX_SUCCESS);
    atomic_store(&registered, 1);
}

static void on_end(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t infos[], size_t count,
                   pmix_info_t results[], size_t others, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)handler, (void)results, (void)others;
    int status = 1, exit_code = 0;
    CHECK(code == PMIX_EVENT_JOB_END && source->rank == 0 && strcmp(source->nspace, me.nspace) != 0);
    for (size_t at = 0; at < count; at++)
        if (PMIX_CHECK_KEY(&infos[at], PMIX_JOB_TERM_STATUS)) {
            CHECK(infos[at].value.type == PMIX_STATUS);
            status = infos[at].value.data.status;
        } else if (PMIX_CHECK_KEY(&infos[at], PMIX_EXIT_CODE)) {
            CHECK(infos[at].value.type == PMIX_INT);
            exit_code = infos[at].value.data.integer;
        } else if (PMIX_CHECK_KEY(&infos[at], PMIX_EVENT_AFFECTED_PROC)) {
            pmix_proc_t *proc = infos[at].value.data.proc;
            CHECK(strcmp(proc->nspace, source->nspace) == 0 && (proc->rank == PMIX_RANK_WILDCARD) == (expected == 0));
        }
    CHECK(status == (expected == 0 ? PMIX_SUCCESS : PMIX_ERR_JOB_NON_ZERO_TERM) && exit_code == expected);
    atomic_fetch_add(&ended, 1);
    if (done != NULL)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void watch_ends(const char *code)
{
    pmix_status_t event = PMIX_EVENT_JOB_END;
    expected = atoi(code);
    PMIx_Register_event_handler(&event, 1, NULL, 0, on_end, on_registered, NULL);
    while (!atomic_load(&registered))
        usleep(1000);
}

/* Rank 0 spawns a job that exits with a code. All ranks that have registered learn of its end. */
static void ends(const char *program, const char *code)
{
    watch_ends(code);
    fence();
    if (me.rank == 0) {
        char *argv[] = {(char *)program, "exits", (char *)code, NULL};
        pmix_app_t app = children_of(argv);
        OK(PMIx_Spawn(NULL, 0, &app, 1, spawned));
    }
    while (!atomic_load(&ended))
        usleep(1000);
    fence();
    CHECK(atomic_load(&ended) == 1);
}

/* The processes of a job by host are those that its size and their hosts tell. */
static void resolves(const char *nspace, uint32_t ranks)
{
    CHECK(number_of(nspace, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE) == ranks);
    char *names, *next;
    OK(PMIx_Resolve_nodes(nspace, &names));
    uint32_t found = 0;
    for (char *host = strtok_r(names, ",", &next); host != NULL; host = strtok_r(NULL, ",", &next)) {
        pmix_proc_t *procs = NULL;
        size_t count = 0;
        OK(PMIx_Resolve_peers(host, nspace, &procs, &count));
        CHECK(count > 0);
        for (size_t at = 0; at < count; at++) {
            CHECK(strcmp(procs[at].nspace, nspace) == 0);
            pmix_value_t *value = value_of(nspace, procs[at].rank, PMIX_HOSTNAME, PMIX_STRING);
            CHECK(strcmp(value->data.string, host) == 0);
            PMIX_VALUE_RELEASE(value);
        }
        found += count;
        PMIX_PROC_FREE(procs, count);
    }
    CHECK(found == ranks);
    free(names);
}

static void connect_jobs(const char *nspace)
{
    pmix_proc_t procs[2];
    procs[0] = rank_of(PMIX_RANK_WILDCARD);
    PMIX_LOAD_PROCID(&procs[1], nspace, PMIX_RANK_WILDCARD);
    OK(PMIx_Connect(procs, 2, NULL, 0));
}

/* A job that ends after it has connected. Its hosts and processes are known afterwards. */
static void connects(const char *program)
{
    watch_ends("0");
    fence();
    if (me.rank == 0) {
        char *argv[] = {(char *)program, "connected", me.nspace, NULL};
        pmix_app_t app = children_of(argv);
        OK(PMIx_Spawn(NULL, 0, &app, 1, spawned));
        pmix_value_t name = {.type = PMIX_STRING, .data.string = spawned};
        OK(PMIx_Put(PMIX_GLOBAL, "spawned", &name));
        OK(PMIx_Commit());
    }
    fence();
    pmix_value_t *value = value_of(me.nspace, 0, "spawned", PMIX_STRING);
    connect_jobs(value->data.string);
    while (!atomic_load(&ended))
        usleep(1000);
    resolves(value->data.string, CHILDREN);
    resolves(me.nspace, size);
    PMIX_VALUE_RELEASE(value);
    fence();
}

static void connected(const char *parent)
{
    connect_jobs(parent);
    resolves(parent, number_of(parent, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE));
}

static void child(const char *parent)
{
    pmix_value_t *value = value_of(me.nspace, me.rank, PMIX_PARENT_ID, PMIX_PROC);
    CHECK(strcmp(value->data.proc->nspace, parent) == 0 && value->data.proc->rank == 1);
    PMIX_VALUE_RELEASE(value);
    CHECK(getenv("PMIX_CARD") != NULL);
    value = value_of(me.nspace, me.rank, PMIX_HOSTNAME, PMIX_STRING);
    CHECK(strcmp(getenv("PMIX_HOSTNAME"), value->data.string) == 0);
    PMIX_VALUE_RELEASE(value);
    pmix_value_t card = {.type = PMIX_UINT32, .data.uint32 = me.rank};
    OK(PMIx_Put(PMIX_GLOBAL, "card", &card));
    OK(PMIx_Commit());
    pmix_pdata_t data;
    pmix_info_t info;
    PMIX_PDATA_CONSTRUCT(&data);
    PMIX_LOAD_KEY(data.key, "children.read");
    PMIX_INFO_LOAD(&info, PMIX_WAIT, NULL, PMIX_BOOL);
    OK(PMIx_Lookup(&data, 1, &info, 1));
    PMIX_PDATA_DESTRUCT(&data);
    meet(parent, me.nspace);
}

/* Data that rank 1 withdraws all at once, and some that rank 2 does. The others stay. */
static void withdraws(void)
{
    char key[32];
    pmix_info_t info;
    pmix_pdata_t data;
    for (int at = 0; at < 3; at++) {
        snprintf(key, sizeof key, "of.%u.%d", me.rank, at);
        PMIX_INFO_LOAD(&info, key, "text", PMIX_STRING);
        OK(PMIx_Publish(&info, 1));
    }
    fence();
    char *some[] = {"of.2.0", "of.2.2", "of.none", NULL};
    if (me.rank == 1)
        OK(PMIx_Unpublish(NULL, NULL, 0));
    else if (me.rank == 2)
        OK(PMIx_Unpublish(some, NULL, 0));
    fence();
    for (uint32_t of = 0; of < size; of++)
        for (int at = 0; at < 3; at++) {
            bool gone = of == 1 || (of == 2 && at != 1);
            snprintf(key, sizeof key, "of.%u.%d", of, at);
            PMIX_PDATA_CONSTRUCT(&data);
            PMIX_LOAD_KEY(data.key, key);
            RETURNS(gone ? PMIX_ERR_NOT_FOUND : PMIX_SUCCESS, PMIx_Lookup(&data, 1, NULL, 0));
            PMIX_PDATA_DESTRUCT(&data);
        }
    fence();
}

/* Requests that are not carried out, and say so. */
static void refused(void)
{
    pmix_proc_t self = rank_of(me.rank);
    pmix_info_t info, *results = NULL;
    size_t count = 0;
    PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_PREEMPTIBLE, NULL, PMIX_BOOL);
    RETURNS(PMIX_ERR_NOT_SUPPORTED, PMIx_Job_control(&self, 1, &info, 1, &results, &count));
    PMIX_INFO_LOAD(&info, PMIX_ALLOC_NUM_NODES, &(uint64_t){1}, PMIX_UINT64);
    RETURNS(PMIX_ERR_NOT_SUPPORTED, PMIx_Allocation_request(PMIX_ALLOC_NEW, &info, 1, &results, &count));
    pmix_byte_object_t credential = {.bytes = "none", .size = 4};
    RETURNS(PMIX_ERR_NOT_SUPPORTED, PMIx_Validate_credential(&credential, NULL, 0, &results, &count));
    fence();
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    join();
    if (strcmp(argv[1], "attributes") == 0)
        attributes();
    else if (strcmp(argv[1], "children") == 0)
        children(argv[0]);
    else if (strcmp(argv[1], "child") == 0)
        child(argv[2]);
    else if (strcmp(argv[1], "withdraws") == 0)
        withdraws();
    else if (strcmp(argv[1], "refused") == 0)
        refused();
    else if (strcmp(argv[1], "ends") == 0)
        ends(argv[0], "0");
    else if (strcmp(argv[1], "connects") == 0)
        connects(argv[0]);
    else if (strcmp(argv[1], "connected") == 0)
        connected(argv[2]);
    else if (strcmp(argv[1], "fails") == 0)
        ends(argv[0], "3");
    else if (strcmp(argv[1], "exits") == 0) {
        OK(PMIx_Finalize(NULL, 0));
        return atoi(argv[2]);
    }
    SAY("rank %u: %s done", me.rank, argv[1]);
    OK(PMIx_Finalize(NULL, 0));
    return 0;
}
