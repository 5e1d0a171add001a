/* Monitors by libpmix, and what processes and hosts use, one group a sub-command. The job has three ranks. Each rank checks its
   results and prints "rank R: NAME done". */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "pmix_check.h"

/* Codes of alerts that the client chooses. */
#define CHOSEN (PMIX_EXTERNAL_ERR_BASE - 1)
#define NEVER (PMIX_EXTERNAL_ERR_BASE - 2)
/* Monitors of libpmix 6, which the others send as they are. */
#define PROCESSES "pmix.monitor.presuse"
#define NODES "pmix.monitor.ndresuse"
#define DISKS "pmix.monitor.dkresuse"
#define NETS "pmix.monitor.netresuse"
#define UPDATE -114

static atomic_int registered, alerts, others, reports;
static atomic_uint source_rank;

static void on_registered(pmix_status_t status, size_t handler, void *place)
{
    (void)handler, (void)place;
    CHECK(status == PMIX_SUCCESS);
    atomic_fetch_add(&registered, 1);
}

static void on_alert(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t infos[], size_t number,
                     pmix_info_t results[], size_t more, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)handler, (void)infos, (void)number, (void)results, (void)more;
    CHECK(strcmp(source->nspace, me.nspace) == 0);
    atomic_store(&source_rank, source->rank);
    atomic_fetch_add(code == NEVER ? &others : &alerts, 1);
    if (done != NULL)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

/* A report has what the reply to its monitor has: an array for a host. */
static void on_report(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t infos[], size_t number,
                      pmix_info_t results[], size_t more, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)handler, (void)code, (void)results, (void)more;
    CHECK(strcmp(source->nspace, me.nspace) == 0);
    for (size_t at = 0; at < number; at++)
        if (PMIX_CHECK_KEY(&infos[at], "pmix.node.res") && infos[at].value.type == PMIX_DATA_ARRAY)
            atomic_fetch_add(&reports, 1);
    if (done != NULL)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void listen_by(pmix_notification_fn_t function, pmix_status_t code)
{
    int before = atomic_load(&registered);
    PMIx_Register_event_handler(&code, 1, NULL, 0, function, on_registered, NULL);
    while (atomic_load(&registered) == before)
        usleep(1000);
}

static void listen_for(pmix_status_t code)
{
    listen_by(on_alert, code);
}

static pmix_info_t *results;
static size_t count;

static pmix_status_t monitor(pmix_info_t what, pmix_status_t code, pmix_info_t *options, size_t number)
{
    results = NULL;
    count = 0;
    return PMIx_Process_monitor(&what, code, options, number, &results, &count);
}

static pmix_info_t info_of(const char *key, const void *value, pmix_data_type_t type)
{
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, key, value, type);
    return info;
}

static pmix_info_t number_of(const char *key, uint32_t number)
{
    return info_of(key, &number, PMIX_UINT32);
}

static pmix_info_t flag_of(const char *key)
{
    return info_of(key, &(bool){true}, PMIX_BOOL);
}

/* A monitor of heartbeats that are due every so many seconds. */
static pmix_status_t monitor_heartbeats(pmix_status_t code, const char *name, uint32_t seconds)
{
    pmix_info_t options[] = {
        info_of(PMIX_MONITOR_ID, name, PMIX_STRING),
        number_of(PMIX_MONITOR_HEARTBEAT_TIME, seconds),
        number_of(PMIX_MONITOR_HEARTBEAT_DROPS, 0),
    };
    return monitor(flag_of(PMIX_MONITOR_HEARTBEAT), code, options, 3);
}

/* The alert is that of this rank. */
static void await_alert(uint32_t rank)
{
    while (me.rank != rank && atomic_load(&alerts) == 0)
        usleep(1000);
    CHECK(me.rank == rank || atomic_load(&source_rank) == rank);
    fence();
}

/* Rank 0 falls silent. */
static void heartbeats(void)
{
    listen_for(PMIX_MONITOR_HEARTBEAT_ALERT);
    fence();
    if (me.rank == 0) {
        OK(monitor_heartbeats(PMIX_SUCCESS, "silent", 1));
        CHECK(count == 0);
    }
    await_alert(0);
    /* The connection takes them. */
    PMIx_Heartbeat();
    fence();
}

/* Rank 1 falls silent after it has canceled another monitor that would have ended before. */
static void canceled(void)
{
    listen_for(CHOSEN);
    listen_for(NEVER);
    fence();
    if (me.rank == 1) {
        OK(monitor_heartbeats(NEVER, "canceled", 1));
        OK(monitor(info_of(PMIX_MONITOR_CANCEL, "canceled", PMIX_STRING), PMIX_SUCCESS, NULL, 0));
        OK(monitor_heartbeats(CHOSEN, "kept", 2));
    }
    await_alert(1);
    CHECK(atomic_load(&others) == 0);
}

/* Rank 2 does not write to a file. */
static void file(void)
{
    char path[] = "/tmp/pmix-monitor-XXXXXX";
    listen_for(PMIX_MONITOR_FILE_ALERT);
    fence();
    if (me.rank == 2) {
        CHECK(mkstemp(path) >= 0);
        pmix_info_t options[] = {
            flag_of(PMIX_MONITOR_FILE_SIZE),
            flag_of(PMIX_MONITOR_FILE_MODIFY),
            number_of(PMIX_MONITOR_FILE_CHECK_TIME, 1),
            number_of(PMIX_MONITOR_FILE_DROPS, 1),
        };
        pmix_info_t what = info_of(PMIX_MONITOR_FILE, path, PMIX_STRING);
        RETURNS(PMIX_ERR_BAD_PARAM, monitor(what, PMIX_SUCCESS, options, 2));
        RETURNS(PMIX_ERR_BAD_PARAM, monitor(what, PMIX_SUCCESS, options + 2, 2));
        OK(monitor(what, PMIX_SUCCESS, options, 4));
    }
    await_alert(2);
    if (me.rank == 2)
        CHECK(unlink(path) == 0);
}

static pmix_value_t *find(const pmix_info_t *of, const char *key, pmix_data_type_t type)
{
    pmix_data_array_t *array = of->value.data.darray;
    CHECK(of->value.type == PMIX_DATA_ARRAY && array->type == PMIX_INFO);
    pmix_info_t *infos = array->array;
    for (size_t at = 0; at < array->size; at++)
        if (PMIX_CHECK_KEY(&infos[at], key)) {
            CHECK(infos[at].value.type == type);
            return &infos[at].value;
        }
    return NULL;
}

/* An option with an array. */
static pmix_info_t array_of(const char *key, pmix_data_type_t type, const void *elements, size_t number)
{
    pmix_info_t info;
    pmix_data_array_t array = {.type = type, .size = number, .array = (void *)elements};
    PMIX_INFO_LOAD(&info, key, &array, PMIX_DATA_ARRAY);
    return info;
}

/* What processes and hosts use. */
static void usage(void)
{
    fence();
    pmix_info_t all = array_of(PROCESSES, PMIX_INFO, NULL, 0);
    OK(monitor(all, PMIX_SUCCESS, NULL, 0));
    CHECK(count == size);
    uint32_t found = 0;
    for (size_t at = 0; at < count; at++) {
        CHECK(PMIX_CHECK_KEY(&results[at], "pmix.proc.res"));
        pmix_proc_t *proc = find(&results[at], PMIX_PROCID, PMIX_PROC)->data.proc;
        CHECK(strcmp(proc->nspace, me.nspace) == 0);
        found |= 1u << proc->rank;
        CHECK(find(&results[at], "pmix.proc.rss", PMIX_FLOAT)->data.fval > 0);
        CHECK(find(&results[at], "pmix.proc.pss", PMIX_FLOAT)->data.fval > 0);
        CHECK(find(&results[at], "pmix.proc.nthr", PMIX_UINT16)->data.uint16 > 0);
        CHECK(find(&results[at], "pmix.proc.time", PMIX_TIMEVAL)->data.tv.tv_sec < 1000);
        CHECK(find(&results[at], "pmix.proc.samptime", PMIX_TIME)->data.time > 1700000000);
    }
    CHECK(found == (1u << size) - 1);
    /* One resource of one process. */
    pmix_info_t resource = flag_of("pmix.proc.vsize");
    pmix_info_t one = array_of(PROCESSES, PMIX_INFO, &resource, 1);
    pmix_proc_t last = rank_of(size - 1);
    pmix_info_t target = array_of("pmix.monitor.tgtproc", PMIX_PROC, &last, 1);
    OK(monitor(one, PMIX_SUCCESS, &target, 1));
    CHECK(count == 1 && find(results, PMIX_PROCID, PMIX_PROC)->data.proc->rank == last.rank);
    CHECK(find(results, "pmix.proc.vsize", PMIX_FLOAT) != NULL && find(results, "pmix.proc.rss", PMIX_FLOAT) == NULL);
    /* Hosts. */
    pmix_info_t nodes = array_of(NODES, PMIX_INFO, NULL, 0), local = flag_of("pmix.monitor.local");
    OK(monitor(nodes, PMIX_SUCCESS, NULL, 0));
    CHECK(count > 0 && PMIX_CHECK_KEY(&results[0], "pmix.node.res"));
    for (size_t at = 0; at < count; at++)
        SAY("rank %u: host %s", me.rank, find(&results[at], PMIX_HOSTNAME, PMIX_STRING)->data.string);
    CHECK(find(&results[0], "pmix.node.mtot", PMIX_FLOAT)->data.fval > find(&results[0], "pmix.node.mfree", PMIX_FLOAT)->data.fval);
    OK(monitor(nodes, PMIX_SUCCESS, &local, 1));
    CHECK(count == 1);
    uint32_t number = find(results, PMIX_NODEID, PMIX_UINT32)->data.uint32;
    pmix_info_t numbers = array_of("pmix.monitor.tgtndids", PMIX_UINT32, &number, 1);
    OK(monitor(nodes, PMIX_SUCCESS, &numbers, 1));
    CHECK(count == 1 && find(results, PMIX_NODEID, PMIX_UINT32)->data.uint32 == number);
    const char *nowhere = "nowhere";
    pmix_info_t names = array_of("pmix.monitor.tgtnode", PMIX_STRING, &nowhere, 1);
    RETURNS(PMIX_ERR_NOT_FOUND, monitor(nodes, PMIX_SUCCESS, &names, 1));
    /* Networks, by both ways to name them. Disks are the machine's. */
    const char *loopback = "lo";
    pmix_info_t of_nets[] = {info_of("pmix.net.id", loopback, PMIX_STRING), flag_of("pmix.net.rcb")};
    pmix_info_t targets = array_of("pmix.monitor.tgtnets", PMIX_STRING, &loopback, 1);
    for (size_t way = 0; way < 2; way++) {
        OK(monitor(array_of(NETS, PMIX_INFO, way ? of_nets : NULL, way ? 2 : 0), PMIX_SUCCESS, &targets, way ? 0 : 1));
        CHECK(count == 1 && PMIX_CHECK_KEY(results, "pmix.net.res"));
        CHECK(strcmp(find(results, "pmix.net.id", PMIX_STRING)->data.string, loopback) == 0);
        CHECK(find(results, "pmix.net.rcb", PMIX_UINT64)->data.uint64 > 0);
        CHECK((find(results, "pmix.net.sntb", PMIX_UINT64) == NULL) == way);
    }
    pmix_status_t disks = monitor(array_of(DISKS, PMIX_INFO, NULL, 0), PMIX_SUCCESS, NULL, 0);
    CHECK(disks == PMIX_SUCCESS || disks == PMIX_ERR_NOT_FOUND);
    for (size_t at = 0; at < count; at++) {
        CHECK(PMIX_CHECK_KEY(&results[at], "pmix.disk.res") && find(&results[at], "pmix.disk.id", PMIX_STRING) != NULL);
        CHECK(find(&results[at], "pmix.disk.rdsct", PMIX_UINT64) != NULL);
    }
    /* The program's own query. */
    pmix_query_t query;
    pmix_status_t added;
    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(added, query.keys, PMIX_QUERY_MEMORY_USAGE);
    OK(added);
    OK(PMIx_Query_info(&query, 1, &results, &count));
    CHECK(count == 1 && PMIX_CHECK_KEY(results, PMIX_QUERY_MEMORY_USAGE));
    CHECK(find(results, PMIX_DAEMON_MEMORY, PMIX_FLOAT)->data.fval > 0);
    CHECK(find(results, PMIX_CLIENT_AVG_MEMORY, PMIX_FLOAT)->data.fval > 0);
    fence();
}

/* Reports at regular times, until they are canceled. */
static void at_times(void)
{
    listen_by(on_report, UPDATE);
    fence();
    pmix_info_t options[] = {info_of(PMIX_MONITOR_ID, "load", PMIX_STRING), number_of("pmix.monitor.resrate", 1)};
    OK(monitor(array_of(NODES, PMIX_INFO, NULL, 0), UPDATE, options, 2));
    CHECK(count > 0 && PMIX_CHECK_KEY(&results[0], "pmix.node.res"));
    while (atomic_load(&reports) < 2)
        usleep(1000);
    OK(monitor(info_of(PMIX_MONITOR_CANCEL, "load", PMIX_STRING), PMIX_SUCCESS, NULL, 0));
    fence();
}

/* Monitors that are not served. */
static void refused(void)
{
    RETURNS(PMIX_ERR_NOT_SUPPORTED, monitor(flag_of("pmix.monitor.none"), PMIX_SUCCESS, NULL, 0));
    pmix_info_t pids = flag_of("pmix.monitor.tgtpid");
    RETURNS(PMIX_ERR_NOT_SUPPORTED, monitor(flag_of(NODES), PMIX_SUCCESS, &pids, 1));
    fence();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } groups[] = {
        {"heartbeats", heartbeats}, {"canceled", canceled}, {"file", file}, {"usage", usage},
        {"reports", at_times}, {"refused", refused},
    };
    CHECK(argc > 1);
    join();
    for (size_t at = 0; at < sizeof groups / sizeof *groups; at++)
        if (strcmp(groups[at].name, argv[1]) == 0) {
            groups[at].run();
            SAY("rank %u: %s done", me.rank, argv[1]);
        }
    OK(PMIx_Finalize(NULL, 0));
    return 0;
}
