/* Debugger over PMIx: `pmix_debugger URI COMMAND [ARGUMENT]... [, COMMAND ...]...` is a tool that spawns jobs of this program, with
   `-` as the URI one that starts a launcher, `pmix_debugger rank CODE` a process that it debugs, which exits with CODE, and
   `pmix_debugger daemon STOP` one that debugs. */
#define _GNU_SOURCE
#include <pmix_tool.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "pmix_check.h"

static char self[4096];
/* The job that was spawned first, to debug, and the latest one. */
static pmix_nspace_t target, latest;
/* The launcher that this program has started. */
static pmix_proc_t launcher;
static char ended[4096], ready[4096];

static void say(const char *what, const char *name, long number)
{
    printf("%s %s %ld\n", what, name, number);
    fflush(NULL);
}

static void on_event(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t ninfo,
                     pmix_info_t results[], size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)handler, (void)source, (void)results, (void)nresults;
    const char *of = "";
    for (size_t at = 0; at < ninfo; at++) {
        if (code == PMIX_EVENT_JOB_END && PMIX_CHECK_KEY(&info[at], PMIX_EVENT_AFFECTED_PROC)) {
            of = info[at].value.data.proc->nspace;
            strcat(strcat(ended, of), ",");
        }
        /* The ends of earlier jobs come too. */
        if (code == PMIX_EVENT_JOB_END && strcmp(of, latest) == 0 && PMIX_CHECK_KEY(&info[at], PMIX_EXIT_CODE))
            say("exit", "code", info[at].value.data.integer);
        if (code == PMIX_READY_FOR_DEBUG && PMIX_CHECK_KEY(&info[at], PMIX_NSPACE))
            strcat(strcat(ready, info[at].value.data.string), ",");
    }
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void listen_to(pmix_status_t code)
{
    static bool known[2];
    if (!known[code == PMIX_EVENT_JOB_END]) {
        known[code == PMIX_EVENT_JOB_END] = true;
        RETURNS(0, PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, NULL, NULL) < 0);
    }
}

static void await(pmix_status_t code, char *list, const char *name)
{
    listen_to(code);
    while (strstr(list, name) == NULL)
        usleep(1000);
}

/* Waits for all processes to debug, the job of a launcher too. */
static void await_ready(void)
{
    await(PMIX_READY_FOR_DEBUG, ready, target[0] == '\0' ? "," : target);
    if (target[0] == '\0')
        memcpy(target, ready, strcspn(ready, ","));
}

static size_t load(pmix_info_t *infos, size_t count, const char *key, const void *value, pmix_data_type_t type)
{
    bool yes = true;
    PMIX_INFO_LOAD(&infos[count], key, type == PMIX_BOOL ? &yes : value, type);
    return count + 1;
}

/* Where processes stop: -, exec or init, all of them or those that are listed (init=1, init=0,2), as processes after an @. Or who
   reads standard input: stdin, or stdin=1, stdin=all, stdin=none. */
static size_t load_stop(pmix_info_t *infos, size_t count, char *stop)
{
    static pmix_proc_t procs[8];
    static pmix_rank_t ranks[8];
    const char *key = strncmp(stop, "exec", 4) == 0 ? PMIX_DEBUG_STOP_ON_EXEC : PMIX_DEBUG_STOP_IN_INIT;
    char *list = strchr(stop, '=');
    if (strcmp(stop, "-") == 0)
        return count;
    if (strncmp(stop, "stdin", 5) == 0) {
        if (list == NULL)
            return load(infos, count, PMIX_FWD_STDIN, NULL, PMIX_BOOL);
        if (list[1] < '0' || list[1] > '9')
            return load(infos, count, PMIX_STDIN_TGT, list + 1, PMIX_STRING);
        PMIX_LOAD_PROCID(&procs[0], "", (pmix_rank_t)atoi(list + 1));
        return load(infos, count, PMIX_STDIN_TGT, &procs[0], PMIX_PROC);
    }
    if (list == NULL)
        return load(infos, count, key, NULL, PMIX_BOOL);
    bool are_procs = list[1] == '@', is_one = strchr(list, ',') == NULL;
    pmix_data_array_t array = {.type = are_procs ? PMIX_PROC : PMIX_PROC_RANK, .array = are_procs ? (void *)procs : ranks};
    for (char *next = list + are_procs; next != NULL; next = strchr(next + 1, ','), array.size++) {
        ranks[array.size] = (pmix_rank_t)atoi(next + 1);
        PMIX_LOAD_PROCID(&procs[array.size], "", ranks[array.size]);
    }
    if (is_one)
        return load(infos, count, key, array.array, array.type);
    return load(infos, count, key, &array, PMIX_DATA_ARRAY);
}

/* Spawns a job: STOP, MAP (-, ppr:N:node), PROCESSES, and the arguments of this program. */
static pmix_status_t spawn(char **arguments, const char *per, uint16_t count)
{
    pmix_info_t infos[8];
    pmix_app_t app;
    pmix_status_t added = PMIX_SUCCESS;
    pmix_proc_t all;
    size_t ninfos = load(infos, 0, PMIX_FWD_STDOUT, NULL, PMIX_BOOL);
    PMIX_APP_CONSTRUCT(&app);
    if (per != NULL) {
        PMIX_LOAD_PROCID(&all, target, PMIX_RANK_WILDCARD);
        ninfos = load(infos, ninfos, PMIX_DEBUGGER_DAEMONS, NULL, PMIX_BOOL);
        ninfos = load(infos, ninfos, PMIX_DEBUG_TARGET, &all, PMIX_PROC);
        ninfos = load(infos, ninfos, per, &count, PMIX_UINT16);
    } else {
        ninfos = load_stop(infos, ninfos, arguments[0]);
        if (strcmp(arguments[1], "-") != 0)
            ninfos = load(infos, ninfos, PMIX_MAPBY, arguments[1], PMIX_STRING);
        app.maxprocs = atoi(arguments[2]);
        arguments += 3;
    }
    bool other = arguments[0][0] == '/';
    app.cmd = strdup(other ? arguments[0] : self);
    PMIX_ARGV_APPEND(added, app.argv, app.cmd);
    for (char **argument = arguments + other; *argument != NULL; argument++)
        PMIX_ARGV_APPEND(added, app.argv, *argument);
    CHECK(added == PMIX_SUCCESS);
    pmix_status_t status = PMIx_Spawn(infos, ninfos, &app, 1, latest);
    if (target[0] == '\0')
        strcpy(target, latest);
    return status;
}

/* Spawns two processes of this program and a daemon in one job: for the job or its first program alone (job, app), STOP. */
static pmix_status_t cospawn(char **arguments)
{
    pmix_info_t of_job[2], of_app[1];
    pmix_app_t apps[2];
    pmix_status_t added = PMIX_SUCCESS;
    bool is_of_job = strcmp(arguments[0], "job") == 0;
    size_t ninfos = load(of_job, 0, PMIX_FWD_STDOUT, NULL, PMIX_BOOL);
    for (int at = 0; at < 2; at++) {
        PMIX_APP_CONSTRUCT(&apps[at]);
        apps[at].cmd = strdup(self);
        apps[at].maxprocs = 2 - at;
        PMIX_ARGV_APPEND(added, apps[at].argv, self);
        PMIX_ARGV_APPEND(added, apps[at].argv, at == 0 ? "rank" : "daemon");
        PMIX_ARGV_APPEND(added, apps[at].argv, at == 0 ? "0" : "together");
        CHECK(added == PMIX_SUCCESS);
    }
    if (is_of_job) {
        ninfos = load_stop(of_job, ninfos, arguments[1]);
    } else {
        apps[0].info = of_app;
        apps[0].ninfo = load_stop(of_app, 0, arguments[1]);
    }
    PMIX_INFO_CREATE(apps[1].info, 1);
    apps[1].ninfo = load(apps[1].info, 0, PMIX_DEBUGGER_DAEMONS, NULL, PMIX_BOOL);
    pmix_status_t status = PMIx_Spawn(of_job, ninfos, apps, 2, latest);
    strcpy(target, latest);
    return status;
}

/* Prints the processes that are to be debugged, all or those on this host, and sends them the signal of a daemon, if any. */
static void table(const char *key, int signal)
{
    pmix_query_t query;
    pmix_status_t added;
    pmix_info_t *results;
    size_t count;
    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(added, query.keys, key);
    OK(added);
    PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
    PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_NSPACE, target, PMIX_STRING);
    OK(PMIx_Query_info(&query, 1, &results, &count));
    pmix_data_array_t *rows = results[0].value.data.darray;
    for (size_t at = 0; at < rows->size; at++) {
        const pmix_proc_info_t *row = (pmix_proc_info_t *)rows->array + at;
        char path[64], state = '?';
        snprintf(path, sizeof path, "/proc/%d/stat", (int)row->pid);
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            CHECK(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
            fclose(file);
        }
        printf("%s: rank %u is in state %c\n", signal < 0 ? "tool" : "daemon", row->proc.rank, state);
        if (signal > 0)
            CHECK(kill(row->pid, signal) == 0);
    }
    fflush(NULL);
}

/* Starts a launcher, which connects to this program: STOP, the launcher, and its arguments. */
static pmix_status_t start(char **arguments)
{
    pmix_info_t directives[8], infos[2];
    pmix_app_t app;
    pmix_value_t *uri;
    pmix_status_t status = PMIX_SUCCESS;
    int timeout = 60;
    size_t count = load(directives, 0, PMIX_FWD_STDOUT, NULL, PMIX_BOOL);
    count = load_stop(directives, count, arguments[0]);
    pmix_data_array_t array = {.type = PMIX_INFO, .size = count, .array = directives};
    load(infos, 0, PMIX_LAUNCH_DIRECTIVES, &array, PMIX_DATA_ARRAY);
    /* libpmix 5 names it otherwise. */
    if (PMIx_Get(&me, "pmix.mysrvr.uri", NULL, 0, &uri) != PMIX_SUCCESS)
        OK(PMIx_Get(&me, PMIX_SERVER_URI, NULL, 0, &uri));
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup(arguments[1]);
    app.maxprocs = 1;
    for (char **argument = arguments + 1; *argument != NULL && status == PMIX_SUCCESS; argument++)
        PMIX_ARGV_APPEND(status, app.argv, *argument);
    OK(status);
    PMIX_SETENV(status, PMIX_LAUNCHER_RNDZ_URI, uri->data.string, &app.env);
    OK(status);
    OK(PMIx_Spawn(infos, 1, &app, 1, latest));
    PMIX_LOAD_PROCID(&launcher, latest, 0);
    count = load(infos, 0, PMIX_WAIT_FOR_CONNECTION, NULL, PMIX_BOOL);
    count = load(infos, count, PMIX_TIMEOUT, &timeout, PMIX_INT);
    return PMIx_tool_set_server(&launcher, infos, count);
}

/* Lets processes go on: the launcher, or those that are to be debugged. */
static void release(const pmix_proc_t *process)
{
    pmix_info_t infos[2];
    size_t count = load(infos, 0, PMIX_EVENT_CUSTOM_RANGE, process, PMIX_PROC);
    count = load(infos, count, PMIX_EVENT_NON_DEFAULT, NULL, PMIX_BOOL);
    OK(PMIx_Notify_event(PMIX_ERR_DEBUGGER_RELEASE, &me, PMIX_RANGE_CUSTOM, infos, count, NULL, NULL));
}

static pmix_status_t push_status;
static volatile int pushed;

static void on_push(pmix_status_t status, void *data)
{
    (void)data;
    push_status = status;
    pushed = 1;
}

/* Input for a process of the latest job, or for all: RANK TEXT. Without a text it ends. */
static pmix_status_t push(char **arguments)
{
    char line[256] = "";
    pmix_proc_t to;
    bool is_all = strcmp(arguments[0], "all") == 0;
    PMIX_LOAD_PROCID(&to, latest, is_all ? PMIX_RANK_WILDCARD : (pmix_rank_t)atoi(arguments[0]));
    if (arguments[1] != NULL)
        snprintf(line, sizeof line, "%s\n", arguments[1]);
    pmix_byte_object_t bytes = {line, strlen(line)};
    pushed = 0;
    OK(PMIx_IOF_push(&to, 1, &bytes, NULL, 0, on_push, NULL));
    while (!pushed)
        usleep(1000);
    return push_status;
}

static int debugged(int code)
{
    join();
    say("runs:", "rank", me.rank);
    OK(PMIx_Finalize(NULL, 0));
    return code;
}

static int debugs(const char *stop)
{
    pmix_value_t *value;
    if (strcmp(stop, "together") == 0) {
        join();
        say("daemon:", "rank", me.rank);
        OK(PMIx_Finalize(NULL, 0));
        return 0;
    }
    OK(PMIx_tool_init(&me, NULL, 0));
    pmix_proc_t own = rank_of(PMIX_RANK_WILDCARD);
    OK(PMIx_Get(&own, PMIX_DEBUG_TARGET, NULL, 0, &value));
    CHECK(value->type == PMIX_PROC && value->data.proc->rank == PMIX_RANK_WILDCARD);
    strcpy(target, value->data.proc->nspace);
    listen_to(PMIX_EVENT_JOB_END);
    table(PMIX_QUERY_LOCAL_PROC_TABLE, strcmp(stop, "exec") == 0 ? SIGCONT : 0);
    /* All of them have the table before its processes go on and end. */
    fence();
    pmix_proc_t all;
    PMIX_LOAD_PROCID(&all, target, PMIX_RANK_WILDCARD);
    if (strcmp(stop, "init") == 0 && me.rank == 0)
        release(&all);
    await(PMIX_EVENT_JOB_END, ended, target);
    OK(PMIx_tool_finalize());
    return 0;
}

static pmix_status_t run(char **arguments)
{
    const char *command = arguments[0];
    pmix_proc_t all;
    PMIX_LOAD_PROCID(&all, target, PMIX_RANK_WILDCARD);
    if (strcmp(command, "start") == 0)
        return start(arguments + 1);
    if (strcmp(command, "spawn") == 0)
        return spawn(arguments + 1, NULL, 0);
    if (strcmp(command, "push") == 0)
        return push(arguments + 1);
    if (strcmp(command, "cospawn") == 0)
        return cospawn(arguments + 1);
    if (strcmp(command, "daemons") == 0) {
        bool per_node = strcmp(arguments[1], "node") == 0;
        const char *per = per_node ? PMIX_DEBUG_DAEMONS_PER_NODE : PMIX_DEBUG_DAEMONS_PER_PROC;
        return spawn(arguments + 3, per, (uint16_t)atoi(arguments[2]));
    }
    if (strcmp(command, "table") == 0)
        table(PMIX_QUERY_PROC_TABLE, -1);
    else if (strcmp(command, "ready") == 0)
        await_ready();
    else if (strcmp(command, "release") == 0)
        release(target[0] == '\0' ? &launcher : &all);
    else if (strcmp(command, "ended") == 0)
        await(PMIX_EVENT_JOB_END, ended, latest);
    else if (strcmp(command, "line") == 0)
        while (getchar() != '\n' && !feof(stdin))
            ;
    else
        return PMIX_ERR_BAD_PARAM;
    return PMIX_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0)
        return debugged(atoi(argv[2]));
    if (argc == 3 && strcmp(argv[1], "daemon") == 0)
        return debugs(argv[2]);
    pmix_info_t infos[3];
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    bool starts = strcmp(argv[1], "-") == 0;
    size_t count = starts ? load(infos, 0, PMIX_TOOL_DO_NOT_CONNECT, NULL, PMIX_BOOL)
                          : load(infos, 0, PMIX_SERVER_URI, argv[1], PMIX_STRING);
    if (starts)
        count = load(infos, count, PMIX_LAUNCHER, NULL, PMIX_BOOL);
    count = load(infos, count, PMIX_IOF_LOCAL_OUTPUT, NULL, PMIX_BOOL);
    OK(PMIx_tool_init(&me, infos, count));
    for (int at = 2; at < argc; at++) {
        char **arguments = argv + at;
        while (at < argc && strcmp(argv[at], ",") != 0)
            at++;
        argv[at] = NULL;
        say(arguments[0], "status", run(arguments));
    }
    PMIx_tool_finalize();
    return 0;
}
