/* How long published data last, and who finds them, one group a sub-command. Prints what is found, and "NAME done". */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "pmix_check.h"

static const struct {
    const char *key;
    pmix_persistence_t value;
} persistences[] = {{"process", PMIX_PERSIST_PROC},
                    {"application", PMIX_PERSIST_APP},
                    {"session", PMIX_PERSIST_SESSION},
                    {"indefinite", PMIX_PERSIST_INDEF}};

static const struct {
    const char *key;
    pmix_data_range_t value;
} ranges[] = {{"itself", PMIX_RANGE_PROC_LOCAL},
              {"job", PMIX_RANGE_NAMESPACE},
              {"node", PMIX_RANGE_LOCAL},
              {"run", PMIX_RANGE_SESSION},
              {"all", PMIX_RANGE_GLOBAL}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void publish(const char *key, pmix_persistence_t persistence, pmix_data_range_t range)
{
    pmix_info_t infos[3];
    PMIX_INFO_LOAD(&infos[0], key, "text", PMIX_STRING);
    PMIX_INFO_LOAD(&infos[1], PMIX_PERSISTENCE, &persistence, PMIX_PERSIST);
    PMIX_INFO_LOAD(&infos[2], PMIX_RANGE, &range, PMIX_DATA_RANGE);
    OK(PMIx_Publish(infos, 3));
}

static bool finds(const char *key, pmix_pdata_t *data)
{
    PMIX_PDATA_CONSTRUCT(data);
    PMIX_LOAD_KEY(data->key, key);
    pmix_status_t status = PMIx_Lookup(data, 1, NULL, 0);
    CHECK(status == PMIX_SUCCESS || status == PMIX_ERR_NOT_FOUND);
    return status == PMIX_SUCCESS;
}

static void await_key(const char *key)
{
    pmix_pdata_t data;
    pmix_info_t info;
    PMIX_PDATA_CONSTRUCT(&data);
    PMIX_LOAD_KEY(data.key, key);
    PMIX_INFO_LOAD(&info, PMIX_WAIT, NULL, PMIX_BOOL);
    OK(PMIx_Lookup(&data, 1, &info, 1));
}

/* Prints which data with a persistence there are, and of which rank. */
static void show_persistences(const char *when)
{
    char line[256] = "";
    for (size_t at = 0; at < COUNT(persistences); at++) {
        pmix_pdata_t data;
        if (finds(persistences[at].key, &data))
            sprintf(line + strlen(line), " %s of %u", persistences[at].key, data.proc.rank);
    }
    SAY("%s:%s", when, line);
}

static void await_end_of(const char *key)
{
    pmix_pdata_t data;
    while (finds(key, &data))
        usleep(1000);
}

/* Rank 1 of the spawned job publishes and ends before rank 0 does. */
static void child(void)
{
    if (me.rank == 1) {
        for (size_t at = 0; at < COUNT(persistences); at++)
            publish(persistences[at].key, persistences[at].value, PMIX_RANGE_SESSION);
        publish("published", PMIX_PERSIST_APP, PMIX_RANGE_SESSION);
        await_key("go.1");
    } else {
        await_key("go.0");
    }
}

static void lifetimes(const char *program)
{
    char nspace[PMIX_MAX_NSLEN + 1];
    pmix_app_t app;
    if (me.rank != 0)
        return fence();
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = (char *)program;
    app.maxprocs = 2;
    app.argv = (char *[]){(char *)program, "child", NULL};
    OK(PMIx_Spawn(NULL, 0, &app, 1, nspace));
    await_key("published");
    show_persistences("while it runs");
    publish("go.1", PMIX_PERSIST_APP, PMIX_RANGE_SESSION);
    await_end_of("process");
    show_persistences("after the process");
    publish("go.0", PMIX_PERSIST_APP, PMIX_RANGE_SESSION);
    await_end_of("application");
    show_persistences("after the job");
    fence();
}

/* Data that stay when this process has ended, and what is there of them. */
static void leave(void)
{
    for (size_t at = 0; at < COUNT(persistences); at++)
        publish(persistences[at].key, persistences[at].value, PMIX_RANGE_SESSION);
    show_persistences("left");
}

static void withdraw(void)
{
    char *keys[] = {"indefinite", NULL};
    show_persistences("found");
    OK(PMIx_Unpublish(keys, NULL, 0));
    show_persistences("withdrawn");
}

static void show_ranges(void)
{
    char line[256] = "";
    for (size_t at = 0; at < COUNT(ranges); at++) {
        pmix_pdata_t data;
        if (finds(ranges[at].key, &data))
            sprintf(line + strlen(line), " %s", ranges[at].key);
    }
    SAY("rank %u of %u finds:%s", me.rank, size, line);
}

/* Data of rank 0 that ranks of its job and a spawned one of one rank look for. */
static void reach(const char *program)
{
    if (me.rank == 0) {
        for (size_t at = 0; at < COUNT(ranges); at++)
            publish(ranges[at].key, PMIX_PERSIST_APP, ranges[at].value);
        char nspace[PMIX_MAX_NSLEN + 1];
        pmix_app_t app;
        PMIX_APP_CONSTRUCT(&app);
        app.cmd = (char *)program;
        app.maxprocs = 1;
        app.argv = (char *[]){(char *)program, "stranger", NULL};
        OK(PMIx_Spawn(NULL, 0, &app, 1, nspace));
        await_key("looked");
    }
    fence();
    show_ranges();
    fence();
}

static void stranger(void)
{
    show_ranges();
    publish("looked", PMIX_PERSIST_SESSION, PMIX_RANGE_SESSION);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    join();
    if (strcmp(argv[1], "lifetimes") == 0)
        lifetimes(argv[0]);
    else if (strcmp(argv[1], "child") == 0)
        child();
    else if (strcmp(argv[1], "leave") == 0)
        leave();
    else if (strcmp(argv[1], "withdraw") == 0)
        withdraw();
    else if (strcmp(argv[1], "reach") == 0)
        reach(argv[0]);
    else if (strcmp(argv[1], "stranger") == 0)
        stranger();
    SAY("rank %u: %s done", me.rank, argv[1]);
    OK(PMIx_Finalize(NULL, 0));
    return 0;
}
