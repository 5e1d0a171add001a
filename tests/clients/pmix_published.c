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
              {"all", PMIX_RANGE_GLOBAL},
              {"listed", PMIX_RANGE_CUSTOM},
              {"unlisted", PMIX_RANGE_CUSTOM},
              {"launcher", PMIX_RANGE_RM}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* In a custom range a list of users, this one or another one, may look data up. */
static pmix_status_t publishes(const char *key, pmix_persistence_t persistence, pmix_data_range_t range)
{
    pmix_info_t infos[4];
    uint32_t users[] = {12345, geteuid()};
    pmix_data_array_t list = {.type = PMIX_UINT32, .array = users};
    list.size = strcmp(key, "unlisted") == 0 ? 1 : 2;
    PMIX_INFO_LOAD(&infos[0], key, "text", PMIX_STRING);
    PMIX_INFO_LOAD(&infos[1], PMIX_PERSISTENCE, &persistence, PMIX_PERSIST);
    PMIX_INFO_LOAD(&infos[2], PMIX_RANGE, &range, PMIX_DATA_RANGE);
    PMIX_INFO_LOAD(&infos[3], PMIX_ACCESS_USERIDS, &list, PMIX_DATA_ARRAY);
    return PMIx_Publish(infos, range == PMIX_RANGE_CUSTOM ? 4 : 3);
}

static void publish(const char *key, pmix_persistence_t persistence, pmix_data_range_t range)
{
    OK(publishes(key, persistence, range));
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

static void publish_ranges(void)
{
    for (size_t at = 0; at < COUNT(ranges); at++)
        publish(ranges[at].key, PMIX_PERSIST_APP, ranges[at].value);
}

/* The rank whose data this process finds under a key that several have published. */
static uint32_t publisher_of(const char *key)
{
    pmix_pdata_t data;
    CHECK(finds(key, &data));
    return data.proc.rank;
}

/* A key is published once in each range. */
static void publish_same(void)
{
    publish("same", PMIX_PERSIST_APP, PMIX_RANGE_PROC_LOCAL);
    RETURNS(PMIX_ERR_DUPLICATE_KEY, publishes("same", PMIX_PERSIST_APP, PMIX_RANGE_PROC_LOCAL));
    if (me.rank == 0)
        publish("same", PMIX_PERSIST_APP, PMIX_RANGE_NAMESPACE);
    fence();
    if (me.rank == 1) {
        RETURNS(PMIX_ERR_DUPLICATE_KEY, publishes("same", PMIX_PERSIST_APP, PMIX_RANGE_NAMESPACE));
        publish("same", PMIX_PERSIST_APP, PMIX_RANGE_GLOBAL);
    }
    CHECK(publisher_of("same") == me.rank);
    fence();
    char *keys[] = {"same", NULL};
    OK(PMIx_Unpublish(keys, NULL, 0));
    fence();
    /* Rank 0 and rank 1 have withdrawn those for the process. */
    CHECK(publisher_of("same") == 0);
    fence();
}

/* Data of rank 0 that ranks of its job and a spawned one of one rank look for. */
static void reach(const char *program)
{
    publish_same();
    if (me.rank == 0) {
        publish_ranges();
        char nspace[PMIX_MAX_NSLEN + 1];
        pmix_app_t app;
        PMIX_APP_CONSTRUCT(&app);
        app.cmd = (char *)program;
        app.maxprocs = 1;
        app.argv = (char *[]){(char *)program, "stranger", NULL};
        OK(PMIx_Spawn(NULL, 0, &app, 1, nspace));
        await_key("looked");
        publish("later", PMIX_PERSIST_APP, PMIX_RANGE_NAMESPACE);
    } else {
        await_key("later");
    }
    show_ranges();
    fence();
}

/* Data of a process that lives until its input ends. */
static void stay(void)
{
    publish_ranges();
    SAY("published");
    while (getchar() != EOF)
        ;
}

/* The service ends with the input. Nothing is published twice. */
static void lose(void)
{
    char *keys[] = {"first", NULL};
    pmix_pdata_t data;
    publish("first", PMIX_PERSIST_APP, PMIX_RANGE_GLOBAL);
    SAY("published");
    while (getchar() != EOF)
        ;
    RETURNS(PMIX_ERR_NOT_AVAILABLE, publishes("second", PMIX_PERSIST_APP, PMIX_RANGE_GLOBAL));
    PMIX_PDATA_CONSTRUCT(&data);
    PMIX_LOAD_KEY(data.key, "first");
    RETURNS(PMIX_ERR_NOT_AVAILABLE, PMIx_Lookup(&data, 1, NULL, 0));
    RETURNS(PMIX_ERR_NOT_AVAILABLE, PMIx_Unpublish(keys, NULL, 0));
}

/* Publishes these keys at once, each with its own name as the value. */
static pmix_status_t publishes_all(const char *const keys[], size_t count)
{
    pmix_info_t infos[8];
    for (size_t at = 0; at < count; at++)
        PMIX_INFO_LOAD(&infos[at], keys[at], keys[at], PMIX_STRING);
    return PMIx_Publish(infos, count);
}

/* Looks up two keys at once, and checks which are found. Waits for them some seconds. */
static void finds_all(const char *first, const char *second, bool has_first, bool has_second, int seconds)
{
    const char *keys[] = {first, second};
    bool has[] = {has_first, has_second};
    pmix_pdata_t data[2];
    pmix_info_t infos[2];
    PMIX_INFO_LOAD(&infos[0], PMIX_WAIT, NULL, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    for (int at = 0; at < 2; at++) {
        PMIX_PDATA_CONSTRUCT(&data[at]);
        PMIX_LOAD_KEY(data[at].key, keys[at]);
    }
    pmix_status_t wanted = has_first || has_second ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND;
    RETURNS(wanted, PMIx_Lookup(data, 2, infos, seconds > 0 ? 2 : 0));
    for (int at = 0; at < 2; at++) {
        bool found = data[at].value.type == PMIX_STRING;
        CHECK(found == has[at] && (!found || strcmp(data[at].value.data.string, keys[at]) == 0));
        CHECK(!found || data[at].proc.rank == 0);
        PMIX_PDATA_DESTRUCT(&data[at]);
    }
}

/* Data of rank 0 under several keys, of which the last rank looks for some. */
static void several(void)
{
    const char *const one[] = {"one", "two", "three"};
    const char *const again[] = {"four", "two", "five"};
    const char *const late[] = {"late", "later"};
    if (me.rank == 0) {
        OK(publishes_all(one, 3));
        RETURNS(PMIX_ERR_DUPLICATE_KEY, publishes_all(again, 3));
    }
    fence();
    if (me.rank == size - 1) {
        finds_all("one", "three", true, true, 0);
        finds_all("one", "none", true, false, 0);
        finds_all("none", "two", false, true, 0);
        finds_all("none", "nothing", false, false, 0);
        /* What went with a key that was taken. */
        finds_all("four", "five", false, false, 0);
        finds_all("none", "two", false, true, 1);
    }
    fence();
    if (me.rank == 0)
        OK(publishes_all(late, 2));
    else
        finds_all("later", "late", true, true, 60);
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
    else if (strcmp(argv[1], "stay") == 0)
        stay();
    else if (strcmp(argv[1], "several") == 0)
        several();
    else if (strcmp(argv[1], "lost") == 0)
        lose();
    SAY("rank %u: %s done", me.rank, argv[1]);
    OK(PMIx_Finalize(NULL, 0));
    return 0;
}
