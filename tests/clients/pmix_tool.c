/* Tool of PMIx: `pmix_tool URI COMMAND [ARGUMENT]...` connects to the server at URI, or to the one that libpmix finds if URI is empty.
   `pmix_tool rank CODE` is a rank, which waits for an event of that code, and `pmix_tool client COMMAND [ARGUMENT]...` one that carries
   out commands. `pmix_tool named NAME COMMAND [ARGUMENT]...` is a tool that names itself, with the server of its environment. */
#define _GNU_SOURCE
#include <pmix_tool.h>
#include <string.h>
#include <unistd.h>

#include "pmix_check.h"

static volatile int events;

static void on_event(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t ninfo,
                     pmix_info_t results[], size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)handler, (void)results, (void)nresults;
    printf("event %d of rank %u of %s\n", code, source->rank, source->nspace);
    for (size_t at = 0; at < ninfo; at++)
        if (strcmp(info[at].key, "pmix.alloc.status") == 0)
            printf("event %d says status %d\n", code, info[at].value.data.status);
        else if (strncmp(info[at].key, "pmix.alloc.", 11) == 0 || PMIX_CHECK_KEY(&info[at], PMIX_PSET_NAME))
            printf("event %d says %s is %s\n", code, info[at].key, info[at].value.data.string);
    fflush(NULL);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
    events++;
}

static void watch(pmix_status_t code)
{
    RETURNS(0, PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, NULL, NULL) < 0);
}

/* Waits for as many events since the start. */
static void until(int count)
{
    while (events < count)
        usleep(1000);
}

static void await(pmix_status_t code, int count)
{
    watch(code);
    printf("ready\n");
    fflush(NULL);
    until(count);
}

/* One process of a program without arguments, on a host, or on one that +HOST adds: HOST PROGRAM. */
static pmix_status_t spawn(char **arguments)
{
    pmix_app_t app;
    pmix_nspace_t nspace;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup(arguments[1]);
    PMIX_ARGV_APPEND(app.maxprocs, app.argv, arguments[1]);
    app.maxprocs = 1;
    PMIX_INFO_CREATE(app.info, 1);
    app.ninfo = 1;
    bool adds = arguments[0][0] == '+';
    PMIX_INFO_LOAD(&app.info[0], adds ? PMIX_ADD_HOST : PMIX_HOST, arguments[0] + adds, PMIX_STRING);
    return PMIx_Spawn(NULL, 0, &app, 1, nspace);
}

/* The processes of each job. */
static void table(void)
{
    pmix_query_t query;
    pmix_status_t added;
    pmix_info_t *results;
    size_t count;
    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(added, query.keys, PMIX_QUERY_NAMESPACES);
    OK(PMIx_Query_info(&query, 1, &results, &count));
    CHECK(count == 1 && results[0].value.type == PMIX_STRING);
    char *save = NULL, *names = results[0].value.data.string;
    for (char *name = strtok_r(names, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
        pmix_info_t *rows;
        PMIX_QUERY_CONSTRUCT(&query);
        PMIX_ARGV_APPEND(added, query.keys, PMIX_QUERY_PROC_TABLE);
        PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
        PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_NSPACE, name, PMIX_STRING);
        OK(PMIx_Query_info(&query, 1, &rows, &count));
        pmix_data_array_t *all = rows[0].value.data.darray;
        for (size_t at = 0; at < all->size; at++) {
            const pmix_proc_info_t *row = (pmix_proc_info_t *)all->array + at;
            printf("%s rank %u on %s is process %d\n", name, row->proc.rank, row->hostname, (int)row->pid);
        }
    }
}

/* The answer to a key, about a job and a set unless they are NULL. */
static pmix_status_t ask_of_sets(const char *key, const char *set, const char *nspace, pmix_info_t **results)
{
    pmix_query_t query;
    pmix_status_t added;
    size_t at = 0, count = 0;
    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(added, query.keys, key);
    if (set != NULL || nspace != NULL)
        PMIX_QUERY_QUALIFIERS_CREATE(&query, (set != NULL) + (nspace != NULL));
    if (set != NULL)
        PMIX_INFO_LOAD(&query.qualifiers[at++], PMIX_PSET_NAME, set, PMIX_STRING);
    if (nspace != NULL)
        PMIX_INFO_LOAD(&query.qualifiers[at++], PMIX_NSPACE, nspace, PMIX_STRING);
    return PMIx_Query_info(&query, 1, results, &count);
}

/* The hosts whose use of memory is known: NAMESPACE. */
static pmix_status_t memory(char **arguments)
{
    pmix_info_t *results;
    pmix_status_t status = ask_of_sets(PMIX_QUERY_MEMORY_USAGE, NULL, arguments[0], &results);
    if (status != PMIX_SUCCESS)
        return status;
    const pmix_data_array_t *all = results[0].value.data.darray;
    for (size_t at = 0; at < all->size; at++) {
        const pmix_info_t *info = (pmix_info_t *)all->array + at;
        if (PMIX_CHECK_KEY(info, PMIX_HOSTNAME))
            printf("memory of %s\n", info->value.data.string);
    }
    return PMIX_SUCCESS;
}

/* Number and names of the process sets, also those of a job: [NAMESPACE]. */
static pmix_status_t sets(char **arguments)
{
    pmix_info_t *results;
    pmix_status_t status = ask_of_sets(PMIX_QUERY_NUM_PSETS, NULL, arguments[0], &results);
    if (status != PMIX_SUCCESS)
        return status;
    size_t number = results[0].value.data.size;
    status = ask_of_sets(PMIX_QUERY_PSET_NAMES, NULL, arguments[0], &results);
    if (status == PMIX_SUCCESS)
        printf("%zu sets: %s\n", number, number > 0 ? results[0].value.data.string : "none");
    return status;
}

/* Members of a process set: NAME [NAMESPACE]. */
static pmix_status_t members(char **arguments)
{
    pmix_info_t *results;
    pmix_status_t status = ask_of_sets(PMIX_QUERY_PSET_MEMBERSHIP, arguments[0], arguments[1], &results);
    if (status != PMIX_SUCCESS)
        return status;
    const pmix_data_array_t *all = results[0].value.data.darray;
    for (size_t at = 0; at < all->size; at++)
        printf("%s has rank %u\n", arguments[0], ((pmix_proc_t *)all->array)[at].rank);
    return status;
}

/* The process sets that this process is in, of which libpmix 4.2.2 has no macro: PMIX_PSET_NAMES. */
static pmix_status_t names(void)
{
    pmix_value_t *value;
    pmix_status_t status = PMIx_Get(&me, "pmix.pset.nms", NULL, 0, &value);
    if (status == PMIX_SUCCESS)
        printf("rank %u is in %s\n", me.rank, value->data.string);
    return status;
}

/* Orders about a process, or all of a job: NAMESPACE RANK ORDER [NUMBER | TEXT]. The namespace of this process is "own". */
static pmix_status_t control(char **arguments)
{
    pmix_proc_t target;
    pmix_info_t order, *results = NULL;
    size_t count = 0;
    pmix_rank_t rank = strcmp(arguments[1], "all") == 0 ? PMIX_RANK_WILDCARD : (pmix_rank_t)atoi(arguments[1]);
    PMIX_LOAD_PROCID(&target, strcmp(arguments[0], "own") == 0 ? me.nspace : arguments[0], rank);
    int number = arguments[3] != NULL ? atoi(arguments[3]) : 0;
    bool yes = true;
    if (number > 0)
        PMIX_INFO_LOAD(&order, arguments[2], &number, PMIX_INT);
    else if (arguments[3] != NULL)
        PMIX_INFO_LOAD(&order, arguments[2], arguments[3], PMIX_STRING);
    else
        PMIX_INFO_LOAD(&order, arguments[2], &yes, PMIX_BOOL);
    return PMIx_Job_control(&target, 1, &order, 1, &results, &count);
}

static volatile int seen;

static void on_output(size_t handler, pmix_iof_channel_t channel, pmix_proc_t *source, pmix_byte_object_t *bytes,
                      pmix_info_t info[], size_t ninfo)
{
    (void)handler, (void)info, (void)ninfo;
    const char *stream = channel == PMIX_FWD_STDERR_CHANNEL ? "stderr" : "stdout";
    printf("%s of rank %u: %.*s", stream, source->rank, (int)bytes->size, bytes->bytes);
    fflush(NULL);
    if (memmem(bytes->bytes, bytes->size, "bye\n", 4) != NULL)
        seen++;
}

static void on_stop(pmix_status_t status, void *data)
{
    *(volatile pmix_status_t *)data = status;
}

/* Output of a process, or of all of a job, until as many lines "bye" have come: NAMESPACE RANK COUNT. */
static pmix_status_t pull(char **arguments)
{
    pmix_proc_t source;
    pmix_rank_t rank = strcmp(arguments[1], "all") == 0 ? PMIX_RANK_WILDCARD : (pmix_rank_t)atoi(arguments[1]);
    PMIX_LOAD_PROCID(&source, arguments[0], rank);
    pmix_iof_channel_t channels = PMIX_FWD_STDOUT_CHANNEL | PMIX_FWD_STDERR_CHANNEL;
    pmix_status_t handler = PMIx_IOF_pull(&source, 1, NULL, 0, channels, on_output, NULL, NULL);
    if (handler < 0)
        return handler;
    printf("pulling\n");
    fflush(NULL);
    while (seen < atoi(arguments[2]))
        usleep(1000);
    volatile pmix_status_t stopped = 1;
    OK(PMIx_IOF_deregister(handler, NULL, 0, on_stop, (void *)&stopped));
    while (stopped == 1)
        usleep(1000);
    return stopped;
}

static volatile int pushed;
static volatile pmix_status_t push_status;

static void on_push(pmix_status_t status, void *data)
{
    (void)data;
    if (status != PMIX_SUCCESS)
        push_status = status;
    pushed++;
}

/* Pushes bytes to a process COUNT times, without waiting for one before the next. PMIx_IOF_push without a callback may hang when
   the answer is quick. */
static pmix_status_t push_all(const pmix_proc_t *target, pmix_byte_object_t *bytes, int count)
{
    for (int at = 0; at < count; at++)
        OK(PMIx_IOF_push(target, 1, bytes, NULL, 0, on_push, NULL));
    printf("pushing\n");
    fflush(NULL);
    while (pushed < count)
        usleep(1000);
    pushed = 0;
    return push_status;
}

/* Input for a process, or for all of a job: NAMESPACE RANK TEXT. Without a text it ends. */
static pmix_status_t push(char **arguments)
{
    char line[1024] = "";
    pmix_proc_t target;
    pmix_rank_t rank = strcmp(arguments[1], "all") == 0 ? PMIX_RANK_WILDCARD : (pmix_rank_t)atoi(arguments[1]);
    PMIX_LOAD_PROCID(&target, arguments[0], rank);
    if (arguments[2] != NULL)
        snprintf(line, sizeof line, "%s\n", arguments[2]);
    pmix_byte_object_t bytes = {line, strlen(line)};
    return push_all(&target, &bytes, 1);
}

/* COUNT pieces of 32 KiB for a process: NAMESPACE RANK COUNT. */
static pmix_status_t flood(char **arguments)
{
    static char piece[32 * 1024];
    pmix_proc_t target;
    pmix_byte_object_t bytes = {piece, sizeof piece};
    PMIX_LOAD_PROCID(&target, arguments[0], (pmix_rank_t)atoi(arguments[1]));
    memset(piece, 'x', sizeof piece);
    return push_all(&target, &bytes, atoi(arguments[2]));
}

/* The standard input of this process is that of a process, until it ends: NAMESPACE RANK. */
static pmix_status_t forward(char **arguments)
{
    pmix_proc_t target;
    pmix_info_t info;
    bool yes = true;
    PMIX_LOAD_PROCID(&target, arguments[0], (pmix_rank_t)atoi(arguments[1]));
    PMIX_INFO_LOAD(&info, PMIX_IOF_PUSH_STDIN, &yes, PMIX_BOOL);
    pmix_status_t status = PMIx_IOF_push(&target, 1, NULL, &info, 1, NULL, NULL);
    CHECK(status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED);
    /* The library does not tell when all has been read. */
    await(atoi(arguments[2]), 1);
    return PMIX_SUCCESS;
}

/* Hosts: new, extend or release, and their number, their names, or the id of an allocation. */
static pmix_status_t allocate(char **arguments)
{
    pmix_info_t infos[2], *results = NULL;
    size_t count = 0;
    uint64_t nodes = (uint64_t)atoi(arguments[1]);
    pmix_alloc_directive_t directive = strcmp(arguments[0], "new") == 0 ? PMIX_ALLOC_NEW
        : strcmp(arguments[0], "extend") == 0                          ? PMIX_ALLOC_EXTEND
                                                                       : PMIX_ALLOC_RELEASE;
    if (nodes > 0)
        PMIX_INFO_LOAD(&infos[0], PMIX_ALLOC_NUM_NODES, &nodes, PMIX_UINT64);
    else if (strncmp(arguments[1], "hydrant.", 8) == 0)
        PMIX_INFO_LOAD(&infos[0], PMIX_ALLOC_ID, arguments[1], PMIX_STRING);
    else
        PMIX_INFO_LOAD(&infos[0], PMIX_ALLOC_NODE_LIST, arguments[1], PMIX_STRING);
    PMIX_INFO_LOAD(&infos[1], PMIX_ALLOC_REQ_ID, "mine", PMIX_STRING);
    pmix_status_t status = PMIx_Allocation_request(directive, infos, 2, &results, &count);
    for (size_t at = 0; at < count; at++)
        printf("%s is %s\n", results[at].key, results[at].value.data.string);
    return status;
}

static pmix_status_t run(char **arguments)
{
    const char *command = arguments[0];
    if (strcmp(command, "table") == 0) {
        table();
    } else if (strcmp(command, "control") == 0) {
        return control(arguments + 1);
    } else if (strcmp(command, "sets") == 0) {
        return sets(arguments + 1);
    } else if (strcmp(command, "members") == 0) {
        return members(arguments + 1);
    } else if (strcmp(command, "names") == 0) {
        return names();
    } else if (strcmp(command, "memory") == 0) {
        return memory(arguments + 1);
    } else if (strcmp(command, "pull") == 0) {
        return pull(arguments + 1);
    } else if (strcmp(command, "push") == 0) {
        return push(arguments + 1);
    } else if (strcmp(command, "flood") == 0) {
        return flood(arguments + 1);
    } else if (strcmp(command, "forward") == 0) {
        return forward(arguments + 1);
    } else if (strcmp(command, "leader") == 0) {
        pmix_value_t *leader;
        return PMIx_Get(&me, PMIX_LOCALLDR, NULL, 0, &leader);
    } else if (strcmp(command, "publish") == 0) {
        pmix_info_t info;
        PMIX_INFO_LOAD(&info, arguments[1], arguments[2], PMIX_STRING);
        return PMIx_Publish(&info, 1);
    } else if (strcmp(command, "lookup") == 0) {
        pmix_pdata_t data;
        PMIX_PDATA_CONSTRUCT(&data);
        strncpy(data.key, arguments[1], PMIX_MAX_KEYLEN);
        pmix_status_t status = PMIx_Lookup(&data, 1, NULL, 0);
        if (status == PMIX_SUCCESS)
            printf("found %s\n", data.value.data.string);
        return status;
    } else if (strcmp(command, "notify") == 0) {
        return PMIx_Notify_event(atoi(arguments[1]), &me, PMIX_RANGE_SESSION, NULL, 0, NULL, NULL);
    } else if (strcmp(command, "await") == 0) {
        await(atoi(arguments[1]), arguments[2] != NULL ? atoi(arguments[2]) : 1);
    } else if (strcmp(command, "watch") == 0) {
        watch(atoi(arguments[1]));
    } else if (strcmp(command, "fence") == 0) {
        fence();
    } else if (strcmp(command, "until") == 0) {
        until(atoi(arguments[1]));
    } else if (strcmp(command, "spawn") == 0) {
        return spawn(arguments + 1);
    } else if (strcmp(command, "allocate") == 0) {
        return allocate(arguments + 1);
    } else if (strcmp(command, "abort") == 0) {
        return PMIx_Abort(3, "enough", NULL, 0);
    } else {
        fprintf(stderr, "unknown command %s\n", command);
        return PMIX_ERR_BAD_PARAM;
    }
    return PMIX_SUCCESS;
}

/* Several commands, separated by commas. */
static void run_all(char **argv)
{
    while (*argv != NULL) {
        char **arguments = argv;
        while (*argv != NULL && strcmp(*argv, ",") != 0)
            argv++;
        if (*argv != NULL)
            *argv++ = NULL;
        pmix_status_t status = run(arguments);
        printf("%s: %d\n", arguments[0], status);
        fflush(NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0) {
        join();
        await(atoi(argv[2]), 1);
        OK(PMIx_Finalize(NULL, 0));
        return 0;
    }
    if (argc > 2 && strcmp(argv[1], "client") == 0) {
        join();
        run_all(argv + 2);
        OK(PMIx_Finalize(NULL, 0));
        return 0;
    }
    pmix_info_t infos[2];
    pmix_rank_t rank = 0;
    bool is_named = argc > 3 && strcmp(argv[1], "named") == 0;
    if (is_named) {
        PMIX_INFO_LOAD(&infos[0], PMIX_TOOL_NSPACE, argv[2], PMIX_STRING);
        PMIX_INFO_LOAD(&infos[1], PMIX_TOOL_RANK, &rank, PMIX_PROC_RANK);
        argv++;
    } else {
        PMIX_INFO_LOAD(&infos[0], PMIX_SERVER_URI, argv[1], PMIX_STRING);
    }
    pmix_status_t status = PMIx_tool_init(&me, infos, is_named ? 2 : argv[1][0] != '\0');
    if (status != PMIX_SUCCESS) {
        printf("no server: %s\n", PMIx_Error_string(status));
        return 1;
    }
    printf("this is rank %u of %s\n", me.rank, me.nspace);
    run_all(argv + 2);
    PMIx_tool_finalize();
    return 0;
}
