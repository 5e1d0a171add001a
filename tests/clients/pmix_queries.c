/* Queries by libpmix about the run, one group a sub-command. The job has three ranks, 0 and 1 on one host and 2 on the same or on
   another one; "topology" takes any number. Each rank checks its results and prints "rank R: NAME done". */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "pmix_check.h"

static pmix_info_t *results;
static size_t count;

/* Asks for keys, NULL-terminated, with qualifiers. */
static pmix_status_t ask(const char *const keys[], pmix_info_t *qualifiers, size_t number)
{
    pmix_query_t query;
    pmix_status_t added;
    results = NULL;
    count = 0;
    PMIX_QUERY_CONSTRUCT(&query);
    for (; *keys != NULL; keys++)
        PMIX_ARGV_APPEND(added, query.keys, *keys);
    if (number > 0) {
        PMIX_QUERY_QUALIFIERS_CREATE(&query, number);
        for (size_t at = 0; at < number; at++)
            PMIX_INFO_XFER(&query.qualifiers[at], &qualifiers[at]);
    }
    pmix_status_t status = PMIx_Query_info(&query, 1, &results, &count);
    PMIX_QUERY_DESTRUCT(&query);
    return status;
}

/* The answer to one key, of this type. */
static pmix_value_t *answer(const char *key, pmix_info_t *qualifiers, size_t number, pmix_data_type_t type)
{
    OK(ask((const char *const[]){key, NULL}, qualifiers, number));
    if (count != 1 || results[0].value.type != type)
        fprintf(stderr, "%s: %zu answers, the first of type %u\n", key, count, count > 0 ? results[0].value.type : 0);
    CHECK(count == 1 && PMIX_CHECK_KEY(&results[0], key) && results[0].value.type == type);
    return &results[0].value;
}

static pmix_info_t text(const char *key, const char *value)
{
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, key, value, PMIX_STRING);
    return info;
}

/* Jobs of the run, by name and with their processes. */
static void jobs(void)
{
    CHECK(strcmp(answer(PMIX_QUERY_NAMESPACES, NULL, 0, PMIX_STRING)->data.string, me.nspace) == 0);
    pmix_data_array_t *all = answer(PMIX_QUERY_NAMESPACE_INFO, NULL, 0, PMIX_DATA_ARRAY)->data.darray;
    CHECK(all->type == PMIX_INFO && all->size == 1);
    pmix_info_t *job = all->array;
    CHECK(PMIX_CHECK_KEY(job, PMIX_JOB_INFO_ARRAY));
    pmix_info_t *facts = job->value.data.darray->array;
    size_t processes = 0, known = 0;
    for (size_t at = 0; at < job->value.data.darray->size; at++)
        if (PMIX_CHECK_KEY(&facts[at], PMIX_NSPACE))
            known += strcmp(facts[at].value.data.string, me.nspace) == 0;
        else if (PMIX_CHECK_KEY(&facts[at], PMIX_CMD_LINE))
            known += strstr(facts[at].value.data.string, "pmix_queries jobs") != NULL;
        else if (PMIX_CHECK_KEY(&facts[at], PMIX_JOB_SIZE))
            known += facts[at].value.data.uint32 == size;
        else
            processes += PMIX_CHECK_KEY(&facts[at], PMIX_PROC_INFO_ARRAY);
    CHECK(known == 3 && processes == size);
    pmix_info_t other = text(PMIX_NSPACE, "no-such-job");
    RETURNS(PMIX_ERR_NOT_FOUND, ask((const char *const[]){PMIX_QUERY_NAMESPACE_INFO, NULL}, &other, 1));
}

static char *host_of(uint32_t rank)
{
    pmix_proc_t proc = rank_of(rank);
    pmix_value_t *value;
    OK(PMIx_Get(&proc, PMIX_HOSTNAME, NULL, 0, &value));
    return value->data.string;
}

/* Checks the row of a process. */
static void check_row(const pmix_proc_info_t *row)
{
    char path[4096], link[64];
    CHECK(strcmp(row->proc.nspace, me.nspace) == 0 && row->proc.rank < size);
    CHECK(strcmp(row->hostname, host_of(row->proc.rank)) == 0);
    CHECK(row->state == PMIX_PROC_STATE_CONNECTED);
    /* All hosts are this machine. */
    snprintf(link, sizeof link, "/proc/%d/exe", (int)row->pid);
    ssize_t len = readlink(link, path, sizeof path);
    CHECK(len > 0 && (size_t)len == strlen(row->executable_name) && memcmp(path, row->executable_name, len) == 0);
    CHECK(row->proc.rank != me.rank || row->pid == getpid());
}

/* Tables of all processes, of those on this host, and of one. */
static void tables(void)
{
    uint32_t here = 0;
    fence();
    for (uint32_t rank = 0; rank < size; rank++)
        here += strcmp(host_of(rank), host_of(me.rank)) == 0;
    pmix_data_array_t *all = answer(PMIX_QUERY_PROC_TABLE, NULL, 0, PMIX_DATA_ARRAY)->data.darray;
    CHECK(all->type == PMIX_PROC_INFO && all->size == size);
    for (uint32_t rank = 0; rank < size; rank++) {
        const pmix_proc_info_t *row = (pmix_proc_info_t *)all->array + rank;
        CHECK(row->proc.rank == rank);
        check_row(row);
    }
    pmix_data_array_t *local = answer(PMIX_QUERY_LOCAL_PROC_TABLE, NULL, 0, PMIX_DATA_ARRAY)->data.darray;
    CHECK(local->size == here);
    for (uint32_t at = 0; at < here; at++)
        check_row((pmix_proc_info_t *)local->array + at);
    pmix_info_t one[] = {text(PMIX_NSPACE, me.nspace), {.flags = 0}};
    PMIX_INFO_LOAD(&one[1], PMIX_RANK, &(pmix_rank_t){2}, PMIX_PROC_RANK);
    pmix_data_array_t *table = answer(PMIX_QUERY_PROC_TABLE, one, 2, PMIX_DATA_ARRAY)->data.darray;
    CHECK(table->size == 1 && ((pmix_proc_info_t *)table->array)->proc.rank == 2);
    pmix_info_t other = text(PMIX_NSPACE, "no-such-job");
    RETURNS(PMIX_ERR_NOT_FOUND, ask((const char *const[]){PMIX_QUERY_PROC_TABLE, NULL}, &other, 1));
    fence();
}

/* Sizes and slots: each host has two. */
static void sizes(void)
{
    pmix_info_t own = text(PMIX_NSPACE, me.nspace);
    OK(ask((const char *const[]){PMIX_JOB_SIZE, NULL}, &own, 1));
    CHECK(results[0].value.data.uint32 == size);
    SAY("rank %u: universe of %u", me.rank, answer(PMIX_UNIV_SIZE, NULL, 0, PMIX_UINT32)->data.uint32);
    SAY("rank %u: %u slots", me.rank, answer("pmix.num.slots", NULL, 0, PMIX_UINT32)->data.uint32);
    SAY("rank %u: %u free slots", me.rank, answer("pmix.qry.aslots", NULL, 0, PMIX_UINT32)->data.uint32);
    pmix_info_t host = text(PMIX_HOSTNAME, host_of(me.rank));
    CHECK(answer("pmix.num.slots", &host, 1, PMIX_UINT32)->data.uint32 > 0);
    SAY("rank %u: hosts %s", me.rank, answer("pmix.qry.node", NULL, 0, PMIX_STRING)->data.string);
    pmix_data_array_t *peers = answer("pmix.qry.peers", &host, 1, PMIX_DATA_ARRAY)->data.darray;
    CHECK(peers->type == PMIX_PROC && peers->size > 0);
    fence();
}

/* One of the functions of an answer about attributes. */
static pmix_data_array_t *attributes_of(const pmix_data_array_t *all, const char *function)
{
    const pmix_info_t *lists = all->array;
    for (size_t at = 0; at < all->size; at++)
        if (PMIX_CHECK_KEY(&lists[at], function)) {
            CHECK(lists[at].value.data.darray->type == PMIX_REGATTR);
            return lists[at].value.data.darray;
        }
    return NULL;
}

/* What is supported, and what is not. libpmix 5 does not send the names of functions, and gets all of them. */
static void support(void)
{
    bool sends_names = strncmp(PMIx_Get_version(), "OpenPMIx 4.", 11) == 0;
    char *keys = strdup(answer(PMIX_QUERY_SUPPORTED_KEYS, NULL, 0, PMIX_STRING)->data.string);
    size_t known = 0;
    for (const char *key = keys; key != NULL; key = strchr(key + 1, ','))
        known++;
    pmix_info_t qualifiers;
    PMIX_INFO_LOAD(&qualifiers, PMIX_QUERY_SUPPORTED_QUALIFIERS, &(bool){true}, PMIX_BOOL);
    CHECK(strstr(answer(PMIX_QUERY_PROC_TABLE, &qualifiers, 1, PMIX_STRING)->data.string, PMIX_RANK) != NULL);
    CHECK(strstr(answer(PMIX_QUERY_SPAWN_SUPPORT, NULL, 0, PMIX_STRING)->data.string, PMIX_WDIR) != NULL);
    CHECK(strstr(answer(PMIX_QUERY_DEBUG_SUPPORT, NULL, 0, PMIX_STRING)->data.string, PMIX_DEBUG_STOP_IN_INIT) != NULL);
    CHECK(strstr(answer(PMIX_SERVER_URI, NULL, 0, PMIX_STRING)->data.string, ";tcp4://") != NULL);
    pmix_info_t of_host[] = {text(PMIX_HOST_FUNCTIONS, ""), text(PMIX_HOST_ATTRIBUTES, "PMIx_Query_info")};
    pmix_data_array_t *all = answer(PMIX_QUERY_ATTRIBUTE_SUPPORT, of_host, 2, PMIX_DATA_ARRAY)->data.darray;
    pmix_info_t *lists = all->array;
    CHECK(all->size == 2 || !sends_names);
    CHECK(PMIX_CHECK_KEY(&lists[0], PMIX_HOST_FUNCTIONS) && strstr(lists[0].value.data.string, "PMIx_Query_info") != NULL);
    pmix_data_array_t *attributes = attributes_of(all, "PMIx_Query_info");
    CHECK(attributes->size == known);
    for (size_t at = 0; at < known; at++) {
        const pmix_regattr_t *attribute = (pmix_regattr_t *)attributes->array + at;
        CHECK(strncmp(attribute->name, "PMIX_", 5) == 0 && strstr(keys, attribute->string) != NULL);
        CHECK(strcmp(attribute->string, PMIX_JOB_SIZE) != 0 || attribute->type == PMIX_UINT32);
    }
    /* Functions by the names of their twins too, and one without attributes. */
    pmix_info_t of_some = text(PMIX_SERVER_ATTRIBUTES, "PMIx_Job_control_nb,PMIx_Fence,PMIx_Commit,PMIx_Get_credential");
    all = answer(PMIX_QUERY_ATTRIBUTE_SUPPORT, &of_some, 1, PMIX_DATA_ARRAY)->data.darray;
    CHECK((all->size == 3 || !sends_names) && attributes_of(all, "PMIx_Get_credential") == NULL);
    CHECK(attributes_of(all, "PMIx_Fence") != NULL);
    attributes = attributes_of(all, "PMIx_Commit");
    CHECK(attributes->size == 1 && strcmp(((pmix_regattr_t *)attributes->array)->name, "NONE") == 0);
    attributes = attributes_of(all, "PMIx_Job_control");
    size_t sets = 0;
    for (size_t at = 0; at < attributes->size; at++)
        sets += strcmp(((pmix_regattr_t *)attributes->array)[at].string, "pmix.jctrl.defpset") == 0;
    CHECK(sets == 1);
    pmix_info_t of_all[] = {text(PMIX_SERVER_FUNCTIONS, ""), text(PMIX_HOST_ATTRIBUTES, "all")};
    all = answer(PMIX_QUERY_ATTRIBUTE_SUPPORT, of_all, 2, PMIX_DATA_ARRAY)->data.darray;
    lists = all->array;
    for (size_t at = 1; at < all->size; at++)
        CHECK(strstr(lists[0].value.data.string, lists[at].key) != NULL);
    CHECK(all->size > 30 && strstr(lists[0].value.data.string, "PMIx_Get_credential") == NULL);
    static const char *const not_supported[] = {
        PMIX_QUERY_JOB_STATUS,       PMIX_QUERY_QUEUE_LIST,     PMIX_QUERY_NUM_GROUPS, PMIX_QUERY_GROUP_NAMES,
        PMIX_QUERY_GROUP_MEMBERSHIP, PMIX_QUERY_AUTHORIZATIONS, "pmix.query.allc",     "pmix.unknown",
    };
    for (size_t at = 0; at < sizeof not_supported / sizeof *not_supported; at++)
        RETURNS(PMIX_ERR_NOT_SUPPORTED, ask((const char *const[]){not_supported[at], NULL}, NULL, 0));
    free(keys);
}

/* Several keys at once: those of the server and of the launcher, and one that nobody knows. libpmix 4 drops the answers then. */
static void mixed(void)
{
    OK(ask((const char *const[]){PMIX_QUERY_PSET_NAMES, PMIX_QUERY_NAMESPACES, PMIX_QUERY_NUM_PSETS, NULL}, NULL, 0));
    CHECK(count == 3);
    RETURNS(PMIX_ERR_PARTIAL_SUCCESS,
            ask((const char *const[]){PMIX_QUERY_NAMESPACES, "pmix.unknown", PMIX_QUERY_NUM_PSETS, NULL}, NULL, 0));
    SAY("rank %u: %zu answers", me.rank, count);
    pmix_info_t none = text(PMIX_PSET_NAME, "no-such-set");
    RETURNS(PMIX_ERR_PARTIAL_SUCCESS,
            ask((const char *const[]){PMIX_QUERY_PSET_MEMBERSHIP, PMIX_QUERY_NAMESPACES, NULL}, &none, 1));
    CHECK(count == 0 || (count == 1 && PMIX_CHECK_KEY(&results[0], PMIX_QUERY_NAMESPACES)));
}

/* A table that exceeds a limit. */
static void too_long(void)
{
    RETURNS(PMIX_ERR_OUT_OF_RESOURCE, ask((const char *const[]){PMIX_QUERY_PROC_TABLE, NULL}, NULL, 0));
}

/* Where each rank of this host is bound, and what ranks are not told of the machine. */
static void places(void)
{
    static const char *const keys[] = {PMIX_CPUSET, PMIX_LOCALITY_STRING};
    static const char *const of_job[] = {
        PMIX_NODE_MAP, PMIX_PROC_MAP, PMIX_HWLOC_XML_V2, PMIX_TMPDIR, PMIX_NSDIR, PMIX_MAPBY, PMIX_RANKBY, PMIX_BINDTO,
        PMIX_HOSTNAME_ALIASES, PMIX_HOSTNAME_KEEP_FQDN, PMIX_AVAIL_PHYS_MEMORY,
    };
    static const char *const of_rank[] = {PMIX_PACKAGE_RANK, "pmix.numarank"};
    pmix_proc_t job = rank_of(PMIX_RANK_WILDCARD), self = rank_of(me.rank);
    pmix_value_t *none;
    for (size_t at = 0; at < sizeof of_job / sizeof *of_job; at++)
        RETURNS(PMIX_ERR_NOT_FOUND, PMIx_Get(&job, of_job[at], NULL, 0, &none));
    for (size_t at = 0; at < sizeof of_rank / sizeof *of_rank; at++)
        RETURNS(PMIX_ERR_NOT_FOUND, PMIx_Get(&self, of_rank[at], NULL, 0, &none));
    for (uint32_t rank = 0; rank < size; rank++)
        for (size_t at = 0; at < 2; at++) {
            pmix_proc_t proc = rank_of(rank);
            pmix_value_t *value;
            pmix_status_t status = PMIx_Get(&proc, keys[at], NULL, 0, &value);
            CHECK(status == PMIX_ERR_NOT_FOUND || (status == PMIX_SUCCESS && value->type == PMIX_STRING));
            SAY("rank %u: %s of %u: %s", me.rank, keys[at], rank, status == PMIX_SUCCESS ? value->data.string : "none");
        }
}

/* A value of a process or of the job, of this type, with qualifiers. */
static pmix_value_t *get(uint32_t rank, const char *key, pmix_info_t *qualifiers, size_t number, pmix_data_type_t type)
{
    pmix_proc_t proc = rank_of(rank);
    pmix_value_t *value = NULL;
    pmix_status_t status = PMIx_Get(&proc, key, qualifiers, number, &value);
    if (status != PMIX_SUCCESS || value->type != type)
        fprintf(stderr, "%s of %u: %d, type %u\n", key, rank, status, status == PMIX_SUCCESS ? value->type : 0);
    CHECK(status == PMIX_SUCCESS && value->type == type);
    return value;
}

/* What ranks get when they ask for it, and not with all that is known of the job. */
static void asked(void)
{
    pmix_info_t of_program[2], of_host[2];
    CHECK(strcmp(get(PMIX_RANK_WILDCARD, PMIX_JOBID, NULL, 0, PMIX_STRING)->data.string, me.nspace) == 0);
    CHECK(get(PMIX_RANK_WILDCARD, PMIX_NPROC_OFFSET, NULL, 0, PMIX_PROC_RANK)->data.rank == 0);
    fence();
    for (uint32_t rank = 0; rank < size; rank++) {
        pid_t pid = get(rank, PMIX_PROC_PID, NULL, 0, PMIX_PID)->data.pid;
        CHECK(pid > 1 && (pid == getpid()) == (rank == me.rank));
        CHECK(get(rank, PMIX_REINCARNATION, NULL, 0, PMIX_UINT32)->data.uint32 == 0);
    }
    PMIX_INFO_LOAD(&of_program[0], PMIX_APP_INFO, NULL, PMIX_BOOL);
    for (uint32_t program = 0; program < 2; program++) {
        PMIX_INFO_LOAD(&of_program[1], PMIX_APPNUM, &program, PMIX_UINT32);
        const char *wdir = get(PMIX_RANK_WILDCARD, PMIX_WDIR, of_program, 2, PMIX_STRING)->data.string;
        const char *line = get(PMIX_RANK_WILDCARD, PMIX_APP_ARGV, of_program, 2, PMIX_STRING)->data.string;
        SAY("rank %u: program %u of %u from rank %u in %s: %s", me.rank, program,
            get(PMIX_RANK_WILDCARD, PMIX_APP_SIZE, of_program, 2, PMIX_UINT32)->data.uint32,
            get(PMIX_RANK_WILDCARD, PMIX_APPLDR, of_program, 2, PMIX_PROC_RANK)->data.rank, wdir,
            strrchr(line, ' ') + 1);
    }
    uint32_t hosts = get(PMIX_RANK_WILDCARD, PMIX_NUM_NODES, NULL, 0, PMIX_UINT32)->data.uint32;
    PMIX_INFO_LOAD(&of_host[0], PMIX_NODE_INFO, NULL, PMIX_BOOL);
    for (uint32_t host = 0; host < hosts; host++) {
        PMIX_INFO_LOAD(&of_host[1], PMIX_NODEID, &host, PMIX_UINT32);
        SAY("rank %u: host %u: %u of %u from rank %u", me.rank, host,
            get(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, of_host, 2, PMIX_UINT32)->data.uint32,
            get(PMIX_RANK_WILDCARD, PMIX_NODE_SIZE, of_host, 2, PMIX_UINT32)->data.uint32,
            get(PMIX_RANK_WILDCARD, PMIX_LOCALLDR, of_host, 2, PMIX_PROC_RANK)->data.rank);
    }
}

/* The topology of this host, which only many ranks get. */
static void topology(void)
{
    pmix_proc_t job = rank_of(PMIX_RANK_WILDCARD);
    pmix_value_t *value;
    pmix_status_t status = PMIx_Get(&job, PMIX_HWLOC_XML_V2, NULL, 0, &value);
    if (status == PMIX_ERR_NOT_FOUND) {
        SAY("rank %u: no topology", me.rank);
        return;
    }
    OK(status);
    CHECK(value->type == PMIX_STRING);
    const char *xml = value->data.string, *end = strstr(xml, "</topology>\n");
    CHECK(strncmp(xml, "<topology>", 10) == 0 && end != NULL && end[12] == '\0');
    SAY("rank %u: a topology of %zu bytes", me.rank, strlen(xml));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } calls[] = {
        {"jobs", jobs}, {"tables", tables}, {"sizes", sizes}, {"support", support}, {"mixed", mixed}, {"places", places},
        {"long", too_long}, {"asked", asked}, {"topology", topology},
    };
    CHECK(argc > 1);
    join();
    for (size_t call = 0; call < sizeof calls / sizeof *calls; call++)
        if (strcmp(argv[1], calls[call].name) == 0)
            calls[call].run();
    SAY("rank %u: %s done", me.rank, argv[1]);
    OK(PMIx_Finalize(NULL, 0));
    return 0;
}
