/* Calls of libpmix without MPI, one group a sub-command. Each rank checks its results and prints "rank R: NAME done". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "pmix_check.h"

/* Waits until another thread, libpmix's, has set a flag. */
static void await(atomic_int *flag)
{
    while (!atomic_load(flag))
        usleep(1000);
}

static void put_string(const char *key, const char *text)
{
    pmix_value_t value;
    PMIX_VALUE_LOAD(&value, text, PMIX_STRING);
    OK(PMIx_Put(PMIX_GLOBAL, key, &value));
    PMIX_VALUE_DESTRUCT(&value);
}

static void check_string(uint32_t rank, const char *key, const char *text)
{
    pmix_proc_t proc = rank_of(rank);
    pmix_value_t *value;
    OK(PMIx_Get(&proc, key, NULL, 0, &value));
    CHECK(value->type == PMIX_STRING && strcmp(value->data.string, text) == 0);
    PMIX_VALUE_RELEASE(value);
}

/* A value of each type, from every rank to every rank, in both scopes. */
static void types(void)
{
    struct timeval moment = {.tv_sec = 12345, .tv_usec = 678};
    pmix_value_t values[24];
    size_t count = 0;
#define VALUE(kind, field, what) values[count++] = (pmix_value_t){.type = kind, .data.field = what}
    VALUE(PMIX_BOOL, flag, true);
    VALUE(PMIX_BYTE, byte, 0xfe);
    VALUE(PMIX_STRING, string, "");
    VALUE(PMIX_STRING, string, "a text; with=signs");
    VALUE(PMIX_SIZE, size, (size_t)1 << 60);
    VALUE(PMIX_PID, pid, 4711);
    VALUE(PMIX_INT, integer, -1);
    VALUE(PMIX_INT8, int8, -128);
    VALUE(PMIX_INT16, int16, -32768);
    VALUE(PMIX_INT32, int32, INT32_MIN);
    VALUE(PMIX_INT64, int64, INT64_MIN);
    VALUE(PMIX_UINT, uint, UINT32_MAX);
    VALUE(PMIX_UINT8, uint8, 255);
    VALUE(PMIX_UINT16, uint16, 65535);
    VALUE(PMIX_UINT32, uint32, UINT32_MAX);
    VALUE(PMIX_UINT64, uint64, UINT64_MAX);
    VALUE(PMIX_FLOAT, fval, 1.5f);
    VALUE(PMIX_DOUBLE, dval, -2.25);
    VALUE(PMIX_TIMEVAL, tv, moment);
    VALUE(PMIX_STATUS, status, -46);
    VALUE(PMIX_PROC, proc, &me);
    VALUE(PMIX_PROC_RANK, rank, 7);
    VALUE(PMIX_BYTE_OBJECT, bo, ((pmix_byte_object_t){.bytes = "\0\1\377", .size = 3}));
    VALUE(PMIX_DATA_ARRAY, darray, (&(pmix_data_array_t){PMIX_UINT32, 3, (uint32_t[]){1, 2, UINT32_MAX}}));
    pmix_scope_t scopes[] = {PMIX_GLOBAL, PMIX_LOCAL};
    char key[32];
    for (size_t at = 0; at < count; at++) {
        snprintf(key, sizeof key, "value.%zu", at);
        OK(PMIx_Put(scopes[at % 2], key, &values[at]));
    }
    OK(PMIx_Commit());
    fence();
    for (uint32_t rank = 0; rank < size; rank++) {
        pmix_proc_t proc = rank_of(rank);
        for (size_t at = 0; at < count; at++) {
            pmix_value_t *got;
            snprintf(key, sizeof key, "value.%zu", at);
            OK(PMIx_Get(&proc, key, NULL, 0, &got));
            CHECK(got->type == values[at].type);
            if (got->type == PMIX_PROC)
                CHECK(got->data.proc->rank == rank && strcmp(got->data.proc->nspace, me.nspace) == 0);
            else
                CHECK(PMIx_Value_compare(got, &values[at]) == PMIX_EQUAL
                      || (got->type == PMIX_DATA_ARRAY && got->data.darray->size == 3
                          && ((uint32_t *)got->data.darray->array)[2] == UINT32_MAX));
            PMIX_VALUE_RELEASE(got);
        }
    }
}

/* A second commit adds to the first one, and a commit without new data leaves them. */
static void twice(void)
{
    char text[32];
    snprintf(text, sizeof text, "first of %u", me.rank);
    put_string("first", text);
    OK(PMIx_Commit());
    fence();
    put_string("second", "more");
    OK(PMIx_Commit());
    fence();
    for (uint32_t rank = 0; rank < size; rank++) {
        snprintf(text, sizeof text, "first of %u", rank);
        check_string(rank, "second", "more");
        check_string(rank, "first", text);
    }
    put_string("third", "kept");
    OK(PMIx_Commit());
    OK(PMIx_Commit());
    fence();
    for (uint32_t rank = 0; rank < size; rank++)
        check_string(rank, "third", "kept");
}

/* As many keys of 1 KiB as fit into a commit, and then some when asked for one that does not fit. */
static void put_long(int count)
{
    char text[1025], key[32];
    memset(text, 'x', 1024);
    text[1024] = 0;
    for (int at = 0; at < count; at++) {
        snprintf(key, sizeof key, "long-%d", at);
        put_string(key, text);
    }
    OK(PMIx_Commit());
    fence();
    for (uint32_t rank = 0; rank < size; rank++)
        for (int at = 0; at < count; at++) {
            snprintf(key, sizeof key, "long-%d", at);
            check_string(rank, key, text);
        }
}

static void long_commit(void)
{
    put_long(32);
}

static void longest_commit(void)
{
    put_long(58);
}

static void too_long_commit(void)
{
    put_long(60);
}

static void far_too_long_commit(void)
{
    put_long(400);
}

/* A get with a refresh finds the newest of so many values of this length, also without a fence that brings it. */
static void renew(int values, int length)
{
    pmix_info_t infos[1];
    bool yes = true, no = false;
    char text[4096];
    PMIX_INFO_LOAD(&infos[0], PMIX_GET_REFRESH_CACHE, &yes, PMIX_BOOL);
    for (int at = 0; at < values; at++) {
        snprintf(text, sizeof text, "value %0*d", length, at);
        put_string("changes", text);
        OK(PMIx_Commit());
        if (at % 2 == 0)
            fence();
        else {
            pmix_info_t plain;
            PMIX_INFO_LOAD(&plain, PMIX_COLLECT_DATA, &no, PMIX_BOOL);
            OK(PMIx_Fence(NULL, 0, &plain, 1));
        }
        for (uint32_t rank = 0; rank < size; rank++) {
            pmix_proc_t proc = rank_of(rank);
            pmix_value_t *value;
            if (at == 0)
                check_string(rank, "changes", text);
            if (rank == me.rank)
                continue;
            OK(PMIx_Get(&proc, "changes", infos, 1, &value));
            if (strcmp(value->data.string, text) != 0)
                SAY("rank %u: '%s' of %u in place of '%s'", me.rank, value->data.string, rank, text);
            CHECK(strcmp(value->data.string, text) == 0);
            PMIX_VALUE_RELEASE(value);
        }
        fence();
    }
}

static void refresh(void)
{
    renew(5, 1);
}

/* More data than the server has room for, and all but the newest are replaced. */
static void endless(void)
{
    renew(200, 2000);
}

/* After a fence, a get of a key that its rank has not put finds nothing. A long wait would be answered by a timeout. */
static void missing(void)
{
    pmix_value_t *value;
    put_string("there", "text");
    OK(PMIx_Commit());
    fence();
    for (uint32_t rank = 0; rank < size; rank++) {
        pmix_proc_t proc = rank_of(rank);
        RETURNS(PMIX_ERR_NOT_FOUND, PMIx_Get(&proc, "not-there", NULL, 0, &value));
    }
    fence();
    if (me.rank == 1) {
        put_string("after", "late");
        OK(PMIx_Commit());
    }
    if (me.rank == 0) {
        pmix_info_t patience;
        int seconds = 60;
        pmix_proc_t one = rank_of(1);
        PMIX_INFO_LOAD(&patience, PMIX_TIMEOUT, &seconds, PMIX_INT);
        OK(PMIx_Get(&one, "after", &patience, 1, &value));
        CHECK(strcmp(value->data.string, "late") == 0);
    }
}

/* Gets without a rank find the rank that has put the key. */
static void any(void)
{
    char key[32], text[32];
    snprintf(key, sizeof key, "card-%u", me.rank);
    snprintf(text, sizeof text, "card of %u", me.rank);
    put_string(key, text);
    OK(PMIx_Commit());
    fence();
    for (uint32_t rank = 0; rank < size; rank++) {
        snprintf(key, sizeof key, "card-%u", rank);
        snprintf(text, sizeof text, "card of %u", rank);
        check_string(PMIX_RANK_UNDEF, key, text);
    }
}

/* Ranks 0 and 1 have fences of their own. */
static void subset(void)
{
    pmix_proc_t pair[] = {rank_of(0), rank_of(1)};
    if (me.rank < 2)
        for (int times = 0; times < 20; times++)
            OK(PMIx_Fence(pair, 2, NULL, 0));
    else
        RETURNS(PMIX_ERR_BAD_PARAM, PMIx_Fence(pair, 2, NULL, 0));
    fence();
}

static atomic_int found;

static void on_value(pmix_status_t status, pmix_value_t *value, void *unused)
{
    (void)unused;
    CHECK(status == PMIX_SUCCESS && strcmp(value->data.string, "late") == 0);
    atomic_store(&found, 1);
}

/* Rank 0 waits for a key of rank 1, which commits it afterwards. */
static void late(void)
{
    pmix_proc_t one = rank_of(1);
    if (me.rank == 0)
        OK(PMIx_Get_nb(&one, "key", NULL, 0, on_value, NULL));
    fence();
    if (me.rank == 1) {
        put_string("key", "late");
        OK(PMIx_Commit());
    }
    if (me.rank == 0)
        await(&found);
    pmix_value_t *value;
    bool now = true;
    pmix_info_t immediate;
    PMIX_INFO_LOAD(&immediate, PMIX_IMMEDIATE, &now, PMIX_BOOL);
    RETURNS(PMIX_ERR_NOT_FOUND, PMIx_Get(&one, "never", &immediate, 1, &value));
}

static void publish(const char *key, const char *text, pmix_persistence_t persistence)
{
    pmix_info_t infos[2];
    PMIX_INFO_LOAD(&infos[0], key, text, PMIX_STRING);
    PMIX_INFO_LOAD(&infos[1], PMIX_PERSISTENCE, &persistence, PMIX_PERSIST);
    OK(PMIx_Publish(infos, 2));
}

/* The first look-up removes the data. Other data stay until they are withdrawn. */
static void once(void)
{
    pmix_pdata_t data;
    char *keys[] = {"kept", NULL};
    if (me.rank == 0) {
        publish("once", "one", PMIX_PERSIST_FIRST_READ);
        publish("kept", "two", PMIX_PERSIST_SESSION);
    }
    fence();
    if (me.rank == 1) {
        for (int times = 0; times < 2; times++) {
            PMIX_PDATA_CONSTRUCT(&data);
            PMIX_LOAD_KEY(data.key, "kept");
            OK(PMIx_Lookup(&data, 1, NULL, 0));
            CHECK(data.proc.rank == 0 && strcmp(data.value.data.string, "two") == 0);
            PMIX_PDATA_CONSTRUCT(&data);
            PMIX_LOAD_KEY(data.key, "once");
            RETURNS(times == 0 ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND, PMIx_Lookup(&data, 1, NULL, 0));
        }
    }
    fence();
    if (me.rank == 0) {
        OK(PMIx_Unpublish(keys, NULL, 0));
        PMIX_PDATA_CONSTRUCT(&data);
        PMIX_LOAD_KEY(data.key, "kept");
        RETURNS(PMIX_ERR_NOT_FOUND, PMIx_Lookup(&data, 1, NULL, 0));
    }
}

static void on_data(pmix_status_t status, pmix_pdata_t data[], size_t count, void *unused)
{
    (void)unused;
    CHECK(status == PMIX_SUCCESS && count == 1 && strcmp(data[0].value.data.string, "at last") == 0);
    atomic_store(&found, 1);
}

/* Rank 0 waits for data that rank 1 publishes afterwards. */
static void waits(void)
{
    bool wait = true;
    char *keys[] = {"awaited", NULL};
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_WAIT, &wait, PMIX_BOOL);
    if (me.rank == 0)
        OK(PMIx_Lookup_nb(keys, &info, 1, on_data, NULL));
    fence();
    if (me.rank == 1)
        publish("awaited", "at last", PMIX_PERSIST_SESSION);
    if (me.rank == 0)
        await(&found);
}

/* One look-up of several keys: all are there, one is missing, all are missing. */
static void several(void)
{
    pmix_pdata_t data[3];
    if (me.rank == 0) {
        publish("a", "value a", PMIX_PERSIST_SESSION);
        publish("c", "value c", PMIX_PERSIST_SESSION);
    }
    fence();
    for (int kind = 0; kind < 3; kind++) {
        const char *keys[][3] = {{"a", "c", "a"}, {"a", "b", "c"}, {"x", "y", "z"}};
        pmix_status_t statuses[] = {PMIX_SUCCESS, PMIX_SUCCESS, PMIX_ERR_NOT_FOUND};
        for (int at = 0; at < 3; at++) {
            PMIX_PDATA_CONSTRUCT(&data[at]);
            PMIX_LOAD_KEY(data[at].key, keys[kind][at]);
        }
        RETURNS(statuses[kind], PMIx_Lookup(data, kind == 0 ? 2 : 3, NULL, 0));
        for (int at = 0; at < 3; at++)
            if (data[at].value.type == PMIX_STRING)
                CHECK(data[at].value.data.string[6] == keys[kind][at][0]);
            else
                CHECK(kind == 2 || (kind == 0 && at == 2) || keys[kind][at][0] == 'b');
    }
    if (me.rank == 0) {
        /* The others may wait by now. */
        publish("d", "value d", PMIX_PERSIST_PROC);
        publish("e", "value e", PMIX_PERSIST_APP);
    } else {
        bool wait = true;
        pmix_info_t info;
        PMIX_INFO_LOAD(&info, PMIX_WAIT, &wait, PMIX_BOOL);
        for (int at = 0; at < 2; at++) {
            PMIX_PDATA_CONSTRUCT(&data[at]);
            PMIX_LOAD_KEY(data[at].key, at == 0 ? "d" : "e");
        }
        OK(PMIx_Lookup(data, 2, &info, 1));
        CHECK(strcmp(data[0].value.data.string, "value d") == 0 && strcmp(data[1].value.data.string, "value e") == 0);
    }
    fence();
}

enum { CODE = -3456, OTHER = -3457 };

static atomic_int registered, notices, others, deaths;

static void on_registered(pmix_status_t status, size_t handler, void *place)
{
    CHECK(status == PMIX_SUCCESS);
    *(size_t *)place = handler;
    atomic_store(&registered, 1);
}

static void on_event(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t infos[],
                     size_t count, pmix_info_t results[], size_t result_count, pmix_event_notification_cbfunc_fn_t done,
                     void *data)
{
    (void)handler, (void)results, (void)result_count;
    int number = -1;
    for (size_t at = 0; at < count; at++)
        if (PMIX_CHECK_KEY(&infos[at], "number"))
            number = infos[at].value.data.integer;
    if (code == CODE) {
        CHECK(source->rank == 0 && number == atomic_load(&notices));
        atomic_fetch_add(&notices, 1);
    } else if (code == OTHER) {
        CHECK(source->rank == 0 && number == atomic_load(&others));
        atomic_fetch_add(&others, 1);
    } else {
        CHECK(code == PMIX_ERR_PROC_ABORTED_BY_SIG && source->rank == 1);
        atomic_fetch_add(&deaths, 1);
    }
    if (done != NULL)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static size_t listen_with(pmix_status_t code, pmix_notification_fn_t on)
{
    size_t handler;
    atomic_store(&registered, 0);
    PMIx_Register_event_handler(&code, code != 0, NULL, 0, on, on_registered, &handler);
    await(&registered);
    return handler;
}

static size_t listen_for(pmix_status_t code)
{
    return listen_with(code, on_event);
}

static void notify(int number, pmix_status_t code, pmix_data_range_t range)
{
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, "number", &number, PMIX_INT);
    OK(PMIx_Notify_event(code, &me, range, &info, 1, NULL, NULL));
}

/* Rank 0 sends events. The others get those for which they have registered, in order. */
static void events(void)
{
    size_t handler = me.rank == 0 ? 0 : listen_for(CODE);
    fence();
    if (me.rank == 0)
        for (int number = 0; number < 5; number++) {
            notify(number, OTHER, PMIX_RANGE_NAMESPACE);
            notify(number, CODE, number % 2 == 0 ? PMIX_RANGE_NAMESPACE : PMIX_RANGE_SESSION);
        }
    while (me.rank != 0 && atomic_load(&notices) < 5)
        usleep(1000);
    fence();
    if (me.rank != 0)
        OK(PMIx_Deregister_event_handler(handler, NULL, NULL));
    fence();
    if (me.rank == 0)
        notify(5, CODE, PMIX_RANGE_NAMESPACE);
    fence();
    CHECK(atomic_load(&notices) == (me.rank == 0 ? 0 : 5));
}

/* Rank 0 sends events of two codes. Rank 2 has registered for the second one alone, and gets the others when it registers for them,
 * which rank 1 has got before. An event that is not to be cached is not among them. */
static void late_events(void)
{
    if (me.rank != 0)
        listen_for(me.rank == 1 ? CODE : OTHER);
    fence();
    if (me.rank == 0) {
        for (int number = 0; number < 3; number++) {
            notify(number, CODE, number == 1 ? PMIX_RANGE_SESSION : PMIX_RANGE_NAMESPACE);
            notify(number, OTHER, PMIX_RANGE_NAMESPACE);
        }
        pmix_info_t infos[2];
        bool yes = true;
        int number = 3;
        PMIX_INFO_LOAD(&infos[0], PMIX_EVENT_DO_NOT_CACHE, &yes, PMIX_BOOL);
        PMIX_INFO_LOAD(&infos[1], "number", &number, PMIX_INT);
        OK(PMIx_Notify_event(CODE, &me, PMIX_RANGE_NAMESPACE, infos, 2, NULL, NULL));
    }
    while (me.rank == 1 && atomic_load(&notices) < 4)
        usleep(1000);
    while (me.rank == 2 && atomic_load(&others) < 3)
        usleep(1000);
    fence();
    CHECK(atomic_load(&notices) == (me.rank == 1 ? 4 : 0));
    if (me.rank == 2) {
        listen_for(CODE);
        while (atomic_load(&notices) < 3)
            usleep(1000);
    }
    fence();
    CHECK(atomic_load(&others) == (me.rank == 2 ? 3 : 0));
    CHECK(atomic_load(&notices) == (me.rank == 0 ? 0 : me.rank == 1 ? 4 : 3));
}

/* Rank 1 is killed. The others get an event about it, also when they register afterwards. */
static void death(void)
{
    if (me.rank != 2)
        listen_for(PMIX_ERR_PROC_ABORTED_BY_SIG);
    fence();
    if (me.rank == 1)
        raise(SIGKILL);
    if (me.rank == 0)
        await(&deaths);
    fence();
    if (me.rank == 2)
        listen_for(PMIX_ERR_PROC_ABORTED_BY_SIG);
    await(&deaths);
    fence();
    CHECK(atomic_load(&deaths) == 1);
}

/* A group of ranks 0 and 2, twice, with different context ids. */
static void group(void)
{
    pmix_proc_t members[] = {rank_of(0), rank_of(2)};
    size_t contexts[2] = {0, 0};
    if (me.rank != 1)
        for (int times = 0; times < 2; times++) {
            bool assign = true;
            pmix_info_t info, *results;
            size_t count;
            PMIX_INFO_LOAD(&info, PMIX_GROUP_ASSIGN_CONTEXT_ID, &assign, PMIX_BOOL);
            OK(PMIx_Group_construct("group", members, 2, &info, 1, &results, &count));
            for (size_t at = 0; at < count; at++)
                if (PMIX_CHECK_KEY(&results[at], PMIX_GROUP_CONTEXT_ID))
                    contexts[times] = results[at].value.data.size;
            OK(PMIx_Group_destruct("group", NULL, 0));
        }
    CHECK(me.rank == 1 || (contexts[0] != 0 && contexts[1] != 0 && contexts[0] != contexts[1]));
    fence();
}

/* Each member gives a value to its group, and asks for those of the others. */
static void gives(void)
{
    pmix_proc_t members[] = {rank_of(0), rank_of(2)};
    if (me.rank == 1) {
        fence();
        return;
    }
    size_t local = 100 + me.rank, context = 0, count;
    bool assign = true;
    pmix_info_t given, infos[2], qualifier, *results;
    PMIX_INFO_LOAD(&given, PMIX_GROUP_LOCAL_CID, &local, PMIX_SIZE);
    pmix_data_array_t array = {.type = PMIX_INFO, .size = 1, .array = &given};
    PMIX_INFO_LOAD(&infos[0], PMIX_GROUP_ASSIGN_CONTEXT_ID, &assign, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[1], PMIX_GROUP_INFO, &array, PMIX_DATA_ARRAY);
    OK(PMIx_Group_construct("giving", members, 2, infos, 2, &results, &count));
    for (size_t at = 0; at < count; at++)
        if (PMIX_CHECK_KEY(&results[at], PMIX_GROUP_CONTEXT_ID))
            context = results[at].value.data.size;
    PMIX_INFO_LOAD(&qualifier, PMIX_GROUP_CONTEXT_ID, &context, PMIX_SIZE);
    PMIX_INFO_SET_QUALIFIER(&qualifier);
    for (int at = 0; at < 2; at++) {
        pmix_value_t *value;
        OK(PMIx_Get(&members[at], PMIX_GROUP_LOCAL_CID, &qualifier, 1, &value));
        CHECK(value->type == PMIX_SIZE && value->data.size == 100 + members[at].rank);
        PMIX_VALUE_RELEASE(value);
    }
    OK(PMIx_Group_destruct("giving", NULL, 0));
    fence();
}

static atomic_int expired;

static void on_expiry(pmix_status_t status, void *data)
{
    RETURNS(PMIX_ERR_TIMEOUT, status);
    expired++;
}

static void on_group_expiry(pmix_status_t status, pmix_info_t *infos, size_t count, void *data,
                            pmix_release_cbfunc_t release, void *released)
{
    on_expiry(status, data);
}

/* Rank 2 comes to no collective before the others have timed out. They succeed when all try again. */
static void expires(void)
{
    pmix_proc_t all[] = {rank_of(0), rank_of(1), rank_of(2)}, job = rank_of(PMIX_RANK_WILDCARD);
    pmix_info_t limit, patience, *results;
    size_t count;
    int short_time = 1, long_time = 100;
    PMIX_INFO_LOAD(&limit, PMIX_TIMEOUT, &short_time, PMIX_INT);
    PMIX_INFO_LOAD(&patience, PMIX_TIMEOUT, &long_time, PMIX_INT);
    if (me.rank < 2) {
        pmix_info_t *own = me.rank == 0 ? &limit : NULL;
        OK(PMIx_Fence_nb(&job, 1, own, own != NULL, on_expiry, NULL));
        OK(PMIx_Fence_nb(all, 3, own, own != NULL, on_expiry, NULL));
        OK(PMIx_Connect_nb(all, 3, own, own != NULL, on_expiry, NULL));
        OK(PMIx_Group_construct_nb("late", all, 3, &limit, 1, on_group_expiry, NULL));
        while (expired < 4)
            usleep(1000);
        put_string("tried", "in vain");
        OK(PMIx_Commit());
    } else {
        for (uint32_t rank = 0; rank < 2; rank++) {
            pmix_value_t *value;
            OK(PMIx_Get(&all[rank], "tried", &patience, 1, &value));
        }
    }
    OK(PMIx_Fence(&job, 1, &patience, 1));
    OK(PMIx_Fence(all, 3, &patience, 1));
    OK(PMIx_Connect(all, 3, &patience, 1));
    OK(PMIx_Group_construct("late", all, 3, &patience, 1, &results, &count));
}

/* The job has the sets app://left (ranks 0 and 1) and app://right (rank 2). */
static void query(void)
{
    pmix_query_t queries[1];
    pmix_info_t *results;
    size_t count;
    PMIX_QUERY_CONSTRUCT(&queries[0]);
    PMIX_ARGV_APPEND(count, queries[0].keys, PMIX_QUERY_PSET_NAMES);
    OK(PMIx_Query_info(queries, 1, &results, &count));
    CHECK(count == 1 && strcmp(results[0].value.data.string, "app://left,app://right") == 0);
    PMIX_QUERY_CONSTRUCT(&queries[0]);
    PMIX_ARGV_APPEND(count, queries[0].keys, PMIX_QUERY_PSET_MEMBERSHIP);
    PMIX_QUERY_QUALIFIERS_CREATE(&queries[0], 1);
    PMIX_INFO_LOAD(&queries[0].qualifiers[0], PMIX_PSET_NAME, "left", PMIX_STRING);
    OK(PMIx_Query_info(queries, 1, &results, &count));
    CHECK(count == 1 && results[0].value.type == PMIX_DATA_ARRAY && results[0].value.data.darray->size == 2);
    PMIX_QUERY_CONSTRUCT(&queries[0]);
    PMIX_ARGV_APPEND(count, queries[0].keys, "pmix.unknown");
    RETURNS(PMIX_ERR_NOT_SUPPORTED, PMIx_Query_info(queries, 1, &results, &count));
}

static atomic_int found, defined, retired;

static void on_set(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t infos[], size_t count,
                   pmix_info_t results[], size_t others, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)handler, (void)source, (void)results, (void)others;
    int named = 0, members = 0, there = 0;
    for (size_t at = 0; at < count; at++)
        if (PMIX_CHECK_KEY(&infos[at], PMIX_PSET_NAME)) {
            const char *name = infos[at].value.data.string;
            named += strcmp(name, "app://late") == 0;
            there += strcmp(name, "app://left") == 0 || strcmp(name, "app://right") == 0;
        } else if (PMIX_CHECK_KEY(&infos[at], PMIX_PSET_MEMBERS)) {
            pmix_data_array_t *array = infos[at].value.data.darray;
            pmix_proc_t *procs = array->array;
            for (size_t member = 0; array->type == PMIX_PROC && member < array->size; member++)
                members += procs[member].rank == 2 * member && strcmp(procs[member].nspace, me.nspace) == 0;
        }
    CHECK(named + there == 1 && (there == 1 || members == (code == PMIX_PROCESS_SET_DEFINE ? 2 : 0)));
    atomic_fetch_add(there == 1 ? &found : code == PMIX_PROCESS_SET_DEFINE ? &defined : &retired, 1);
    if (done != NULL)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

/* A function of the preloaded libhydrant_mpi. */
static void *preloaded(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    CHECK(function != NULL);
    return function;
}

/* All ranks get the sets of the job. Rank 0 defines one of ranks 0 and 2. Rank 2 retires and removes it. All get the events. */
static void sets(void)
{
    enum { INFO_NULL = 0x130, ERRORS_RETURN = 0x143 };
    int (*init)(size_t, size_t, size_t *) = preloaded("MPI_Session_init");
    int (*define)(size_t, const char *, int, const int *) = preloaded("hydrant_pset_define");
    int (*retire)(size_t, const char *) = preloaded("hydrant_pset_retire");
    int (*prune)(size_t) = preloaded("hydrant_pset_prune");
    size_t session;
    listen_with(PMIX_PROCESS_SET_DEFINE, on_set);
    listen_with(PMIX_PROCESS_SET_DELETE, on_set);
    CHECK(init(INFO_NULL, ERRORS_RETURN, &session) == 0);
    fence();
    if (me.rank == 0)
        CHECK(define(session, "late", 2, (int[]){2, 0}) == 0);
    await(&defined);
    fence();
    if (me.rank == 2)
        CHECK(retire(session, "late") == 0);
    await(&retired);
    fence();
    if (me.rank == 2)
        CHECK(prune(session) == 0);
    fence();
    CHECK(atomic_load(&found) == 2 && atomic_load(&defined) == 1 && atomic_load(&retired) == 1);
}

/* The ranks of all hosts are those of the job. */
static void hosts(void)
{
    char *names, *rest;
    uint32_t found = 0;
    OK(PMIx_Resolve_nodes(me.nspace, &names));
    for (char *host = strtok_r(names, ",", &rest); host; host = strtok_r(NULL, ",", &rest)) {
        pmix_proc_t *procs;
        size_t count;
        OK(PMIx_Resolve_peers(host, me.nspace, &procs, &count));
        CHECK(count > 0);
        for (size_t at = 0; at < count; at++) {
            CHECK(strcmp(procs[at].nspace, me.nspace) == 0 && procs[at].rank < size);
            found |= 1u << procs[at].rank;
            if (procs[at].rank == me.rank)
                SAY("rank %u is on %s with %zu", me.rank, host, count);
        }
        PMIX_PROC_FREE(procs, count);
    }
    CHECK(found == (1u << size) - 1);
    free(names);
}

/* The launcher prints text for the user. Other kinds of logs are refused. */
static void logs(void)
{
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_LOG_STDERR, "a text for the user\n", PMIX_STRING);
    OK(PMIx_Log(&info, 1, NULL, 0));
    PMIX_INFO_LOAD(&info, PMIX_LOG_STDOUT, "a result\n", PMIX_STRING);
    OK(PMIx_Log(&info, 1, NULL, 0));
    PMIX_INFO_LOAD(&info, PMIX_LOG_EMAIL, "a letter", PMIX_STRING);
    RETURNS(PMIX_ERR_NOT_SUPPORTED, PMIx_Log(&info, 1, NULL, 0));
    /* A help text, as Open MPI sends it. */
    pmix_info_t names[2];
    PMIX_INFO_LOAD(&info, PMIX_LOG_STDERR, "a help text\n", PMIX_STRING);
    PMIX_INFO_LOAD(&names[0], "pmix.log.key", "help-test.txt", PMIX_STRING);
    PMIX_INFO_LOAD(&names[1], "pmix.log.val", "a topic", PMIX_STRING);
    OK(PMIx_Log(&info, 1, names, 2));
    fence();
}

/* The process finalizes and initializes again. */
static void again(void)
{
    for (int times = 0; times < 3; times++) {
        OK(PMIx_Finalize(NULL, 0));
        OK(PMIx_Init(&me, NULL, 0));
        fence();
    }
}

static void ends(void)
{
    if (me.rank == 1)
        PMIx_Abort(19, "as the test wants", NULL, 0);
    fence();
}

/* Waits for what another run publishes under a key. */
static void look_up_elsewhere(const char *key, const char *expected)
{
    bool wait = true;
    pmix_info_t info;
    pmix_pdata_t data;
    PMIX_INFO_LOAD(&info, PMIX_WAIT, &wait, PMIX_BOOL);
    PMIX_PDATA_CONSTRUCT(&data);
    PMIX_LOAD_KEY(data.key, key);
    OK(PMIx_Lookup(&data, 1, &info, 1));
    CHECK(strcmp(data.value.data.string, expected) == 0);
}

/* Publishes data for another run, withdraws them when that run has published its own, and stays until its input ends. */
static void offer(void)
{
    char *keys[] = {"offer", NULL};
    if (me.rank == 0) {
        publish("offer", "of one run", PMIX_PERSIST_SESSION);
        look_up_elsewhere("taken", "by another run");
        OK(PMIx_Unpublish(keys, NULL, 0));
        publish("withdrawn", "by now", PMIX_PERSIST_SESSION);
        CHECK(getchar() == EOF);
    }
}

/* Reads the data of the other run until they are withdrawn. */
static void take(void)
{
    pmix_pdata_t data;
    if (me.rank == 0) {
        look_up_elsewhere("offer", "of one run");
        publish("taken", "by another run", PMIX_PERSIST_SESSION);
        look_up_elsewhere("withdrawn", "by now");
        PMIX_PDATA_CONSTRUCT(&data);
        PMIX_LOAD_KEY(data.key, "offer");
        RETURNS(PMIX_ERR_NOT_FOUND, PMIx_Lookup(&data, 1, NULL, 0));
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } calls[] = {
        {"types", types}, {"twice", twice}, {"subset", subset}, {"late", late},   {"once", once},
        {"waits", waits}, {"several", several}, {"events", events}, {"late-events", late_events}, {"death", death}, {"group", group},
        {"expires", expires}, {"gives", gives},
        {"query", query}, {"sets", sets},   {"hosts", hosts}, {"log", logs},    {"again", again},   {"abort", ends},
        {"offer", offer}, {"take", take},   {"any", any},
        {"long", long_commit}, {"longest", longest_commit}, {"too-long", too_long_commit},
        {"far-too-long", far_too_long_commit}, {"refresh", refresh}, {"endless", endless}, {"missing", missing},
    };
    CHECK(argc > 1);
    join();
    for (int at = 1; at < argc; at++)
        for (size_t call = 0; call < sizeof calls / sizeof *calls; call++)
            if (strcmp(argv[at], calls[call].name) == 0) {
                calls[call].run();
                SAY("rank %u: %s done", me.rank, argv[at]);
            }
    OK(PMIx_Finalize(NULL, 0));
    return 0;
}
