/* Every function of pmi2.h with right and with wrong arguments, and the code that each call has to give. Runs as a job
 * of any size under hydrant, or alone.
 *
 *   pmi2_codes [alone]
 */
// Test: libraries `pmi2::functions::every_code_where_it_belongs`
#include "pmi2_check.h"
#include <fcntl.h>

#define GIVES(code, call)                                                                                         \
    do {                                                                                                          \
        int rc_ = (call);                                                                                         \
        if (rc_ != (code)) {                                                                                      \
            fprintf(stderr, "rank %d: %s:%d: %s gave %d, not %s\n", rank, __FILE__, __LINE__, #call, rc_, #code); \
            exit(97);                                                                                             \
        }                                                                                                         \
    } while (0)

static char key_64[65], key_65[66], value_1024[1025], value_1025[1026], huge[70 * 1024];
static char text[2048];
static int number, other, array[8];
static PMI2_Connect_comm_t comm;

static void fill(void)
{
    memset(key_64, 'k', 64);
    memset(key_65, 'k', 65);
    memset(value_1024, 'v', 1024);
    memset(value_1025, 'v', 1025);
    memset(huge, 'h', sizeof huge - 1);
}

/* Before PMI2_Init and after PMI2_Finalize. */
// Shows: pmi2.h, Return codes | `PMI2_ERR_INIT` | before init | done; also after finalize
// Shows: pmi2.h, Joining and leaving | `PMI2_Finalize` | leaves the job | done; a rank that ends without it counts as
// failed
// Also: hydrant-core `failures_end_the_job_and_say_why`
static void test_uninitialized(void)
{
    GIVES(PMI2_ERR_INIT, PMI2_Finalize());
    GIVES(PMI2_ERR_INIT, PMI2_Abort(1, "not yet"));
    GIVES(PMI2_ERR_INIT, PMI2_Job_Spawn(1, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, text, 9, NULL));
    GIVES(PMI2_ERR_INIT, PMI2_Job_GetId(text, sizeof text));
    GIVES(PMI2_ERR_INIT, PMI2_Job_GetRank(&number));
    GIVES(PMI2_ERR_INIT, PMI2_Info_GetSize(&number));
    GIVES(PMI2_ERR_INIT, PMI2_Job_Connect("job", &comm));
    GIVES(PMI2_ERR_INIT, PMI2_Job_Disconnect("job"));
    GIVES(PMI2_ERR_INIT, PMIX_Ring("value", &number, &other, text, text + 9, 9));
    GIVES(PMI2_ERR_INIT, PMI2_KVS_Put("key", "value"));
    GIVES(PMI2_ERR_INIT, PMI2_KVS_Put(NULL, NULL));
    GIVES(PMI2_ERR_INIT, PMI2_KVS_Fence());
    GIVES(PMI2_ERR_INIT, PMI2_KVS_Get(NULL, PMI2_ID_NULL, "key", text, sizeof text, &number));
    GIVES(PMI2_ERR_INIT, PMI2_Info_GetNodeAttr("name", text, sizeof text, &number, 0));
    GIVES(PMI2_ERR_INIT, PMI2_Info_GetNodeAttrIntArray("name", array, 8, &number, &other));
    GIVES(PMI2_ERR_INIT, PMI2_Info_PutNodeAttr("name", "value"));
    GIVES(PMI2_ERR_INIT, PMI2_Info_GetJobAttr("name", text, sizeof text, &number));
    GIVES(PMI2_ERR_INIT, PMI2_Info_GetJobAttrIntArray("name", array, 8, &number, &other));
    GIVES(PMI2_ERR_INIT, PMI2_Nameserv_publish("name", NULL, "port"));
    GIVES(PMI2_ERR_INIT, PMI2_Nameserv_lookup("name", NULL, text, sizeof text));
    GIVES(PMI2_ERR_INIT, PMI2_Nameserv_unpublish("name", NULL));
}

// Shows: pmi2.h, Constants and types | `PMI2_Connect_comm_t.read`, `.write`, `.ctx` | a channel between two jobs
// whose servers cannot read each other's spaces | done: NULL, because the servers read each other's spaces, in one
// run and between runs that share a name server
// Also: libraries `pmi2::runs::two_runs_read_each_other`
// Shows: pmi2.h, Constants and types | `PMI2_Connect_comm_t.isMaster` | 1, 0 or -1, agreed by both sides | done: -1,
// no master
// Shows: pmi2.h, Return codes | `PMI2_ERR_INVALID_ARG` | an invalid argument | done
// Shows: pmi2.h, Job | `PMI2_Job_GetId` `jobid`, `jobid_size` | the job's id | done
// Shows: pmi2.h, Job | `PMI2_Job_GetRank` `rank` | the rank, as init returns it | done
// Shows: pmi2.h, Job | `PMI2_Job_Connect` `conn` | a channel, where one is needed | done: none is needed
static void test_job(void)
{
    int again[4] = {-1, -1, -1, -1};
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Init(NULL, &again[0], &again[0], &again[0]));
    GIVES(PMI2_SUCCESS, PMI2_Init(&again[0], &again[1], &again[2], &again[3]));
    CHECK(again[0] == spawned && again[1] == size && again[2] == rank && again[3] == appnum);
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_GetRank(NULL));
    GIVES(PMI2_SUCCESS, PMI2_Job_GetRank(&number));
    CHECK(number == rank);
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Info_GetSize(NULL));
    GIVES(PMI2_SUCCESS, PMI2_Info_GetSize(&number));
    CHECK(number == size);
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_GetId(NULL, 9));
    GIVES(PMI2_ERR_INVALID_SIZE, PMI2_Job_GetId(text, 0));
    GIVES(PMI2_ERR_INVALID_SIZE, PMI2_Job_GetId(text, -1));
    GIVES(PMI2_ERR_NOMEM, PMI2_Job_GetId(text, 4));
    CHECK(strlen(text) == 3 && !strncmp(text, jobid, 3));
    GIVES(PMI2_ERR_NOMEM, PMI2_Job_GetId(text, (int)strlen(jobid)));
    GIVES(PMI2_SUCCESS, PMI2_Job_GetId(text, (int)strlen(jobid) + 1));
    CHECK(!strcmp(text, jobid));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_Connect(NULL, &comm));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_Connect("", &comm));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_Connect(jobid, NULL));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_Connect("no-such-job", &comm));
    comm.isMaster = 7, comm.ctx = &comm;
    GIVES(PMI2_SUCCESS, PMI2_Job_Connect(jobid, &comm));
    CHECK(!comm.read && !comm.write && !comm.ctx && comm.isMaster == -1);
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_Disconnect(NULL));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_Disconnect("no-such-job"));
}

// Shows: pmi2.h, Constants and types | `PMI2_MAX_KEYLEN` | keys of up to 64 characters | done: 64 without NUL
// Also: core `limits::too_long_keys_and_values_are_refused_and_change_nothing`
// Shows: pmi2.h, Constants and types | `PMI2_MAX_VALLEN` | values of up to 1,024 characters | done: 1,024 without NUL
// Also: core `limits::too_long_keys_and_values_are_refused_and_change_nothing`
// Shows: pmi2.h, Constants and types | `PMI2_ID_NULL` | -1: no hint | done
// Shows: pmi2.h, Return codes | `PMI2_SUCCESS` | success | done
// Shows: pmi2.h, Return codes | `PMI2_ERR_INVALID_KEY`, `_KEY_LENGTH` | an invalid key, or its length | done
// Shows: pmi2.h, Return codes | `PMI2_ERR_INVALID_VAL`, `_VAL_LENGTH` | an invalid value, or its length | done
// Shows: pmi2.h, Return codes | `PMI2_ERR_INVALID_LENGTH` | an invalid length | done
// Shows: pmi2.h, Key-value space | `PMI2_KVS_Put` `key`, `value` | stores a pair | done
// Shows: pmi2.h, Key-value space | `PMI2_KVS_Get` `jobid` | NULL: the own space | done; also empty, and the own id
// Shows: pmi2.h, Key-value space | `PMI2_KVS_Get` `value`, `maxvalue` | the value, in a buffer of that size | done
// Shows: pmi2.h, Key-value space | `PMI2_KVS_Get` `vallen` | its length, negative if it exceeds the buffer | done
static void test_kvs(void)
{
    char key[32];
    GIVES(PMI2_ERR_INVALID_KEY, PMI2_KVS_Put(NULL, "value"));
    GIVES(PMI2_ERR_INVALID_KEY, PMI2_KVS_Put("", "value"));
    GIVES(PMI2_ERR_INVALID_KEY_LENGTH, PMI2_KVS_Put(key_65, "value"));
    GIVES(PMI2_ERR_INVALID_VAL, PMI2_KVS_Put("key", NULL));
    GIVES(PMI2_ERR_INVALID_VAL_LENGTH, PMI2_KVS_Put("key", value_1025));
    GIVES(PMI2_ERR_INVALID_VAL_LENGTH, PMI2_KVS_Put("key", huge));
    snprintf(key, sizeof key, "empty-%d", rank);
    GIVES(PMI2_SUCCESS, PMI2_KVS_Put(key, ""));
    snprintf(key, sizeof key, "ten-%d", rank);
    GIVES(PMI2_SUCCESS, PMI2_KVS_Put(key, "0123;5678;"));
    if (rank == 0)
        GIVES(PMI2_SUCCESS, PMI2_KVS_Put(key_64, value_1024));
    GIVES(PMI2_SUCCESS, PMI2_KVS_Fence());
    for (int i = 0; i < size; i++) {
        snprintf(key, sizeof key, "ten-%d", i);
        check_value(i % 2 ? jobid : NULL, i, key, "0123;5678;");
        check_value("", 1000, key, "0123;5678;");
        snprintf(key, sizeof key, "empty-%d", i);
        check_value(NULL, PMI2_ID_NULL, key, "");
    }
    check_value(NULL, 0, key_64, value_1024);
    GIVES(PMI2_SUCCESS, PMI2_KVS_Get(NULL, 0, "ten-0", text, 11, &number));
    CHECK(number == 10 && strlen(text) == 10);
    /* Too small: the negative length, and what fits. */
    for (int room = 0; room <= 10; room++) {
        memset(text, '#', sizeof text);
        GIVES(PMI2_SUCCESS, PMI2_KVS_Get(NULL, 0, "ten-0", text, room, &number));
        CHECK(number == -10 && text[room] == '#');
        CHECK(room == 0 || ((int)strlen(text) == room - 1 && !strncmp(text, "0123;5678;", room - 1)));
    }
    GIVES(PMI2_SUCCESS, PMI2_KVS_Get(NULL, 0, "ten-0", NULL, 0, &number));
    CHECK(number == -10);
    GIVES(PMI2_SUCCESS, PMI2_KVS_Get(NULL, 0, "ten-0", NULL, 99, &number));
    CHECK(number == -10);
    number = 77;
    GIVES(PMI2_ERR_OTHER, PMI2_KVS_Get(NULL, 0, "-NONEXIST-KEY", NULL, 0, &number));
    GIVES(PMI2_ERR_OTHER, PMI2_KVS_Get(NULL, 0, "key", text, sizeof text, &number));
    GIVES(PMI2_ERR_INVALID_KEY, PMI2_KVS_Get(NULL, 0, NULL, text, sizeof text, &number));
    GIVES(PMI2_ERR_INVALID_KEY, PMI2_KVS_Get(NULL, 0, "", text, sizeof text, &number));
    GIVES(PMI2_ERR_INVALID_KEY_LENGTH, PMI2_KVS_Get(NULL, 0, key_65, text, sizeof text, &number));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMI2_KVS_Get(NULL, 0, "ten-0", text, -1, &number));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_KVS_Get("no-such-job", 0, "ten-0", text, sizeof text, &number));
    CHECK(number == 77);
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_KVS_Get(NULL, 0, "ten-0", text, sizeof text, NULL));
    /* The buffer may be where the key is. */
    strcpy(text, "ten-0");
    GIVES(PMI2_SUCCESS, PMI2_KVS_Get(NULL, 0, text, text, sizeof text, &number));
    CHECK(number == 10 && !strcmp(text, "0123;5678;"));
}

// Shows: pmi2.h, Constants and types | `PMI2_MAX_ATTRVALUE` | attributes of up to 1,024 characters | done: the limit
// of values
// Shows: pmi2.h, Return codes | `PMI2_ERR_NOMEM` | a buffer is too small | done; also a limit of the server
// Also: hydrant-client `servers_codes_are_those_of_pmi2_h`
// Shows: pmi2.h, Attributes of the node | `PMI2_Info_GetNodeAttr` `name`, `value`, `valuelen`, `found` | an
// attribute, and whether there is one | done
// Shows: pmi2.h, Attributes of the node | `PMI2_Info_GetNodeAttrIntArray` `array`, `arraylen`, `outlen`, `found` | a
// list of integers | done
// Shows: pmi2.h, Attributes of the node | `PMI2_Info_GetNodeAttrIntArray` | the value has to be a list of integers |
// done: `PMI2_ERR_INVALID_VAL` otherwise
// Shows: pmi2.h, Attributes of the node | `PMI2_Info_GetNodeAttrIntArray` | returns at once without the attribute |
// done
// Shows: pmi2.h, Attributes of the job | `PMI2_Info_GetJobAttr` `name`, `value`, `valuelen`, `found` | an attribute,
// and whether there is one | done
// Shows: pmi2.h, Attributes of the job | `PMI2_Info_GetJobAttrIntArray` `array`, `arraylen`, `outlen`, `found` | a
// list of integers | done
static void test_attributes(int alone)
{
    GIVES(PMI2_ERR_INVALID_KEY, PMI2_Info_PutNodeAttr(NULL, "value"));
    GIVES(PMI2_ERR_INVALID_KEY, PMI2_Info_PutNodeAttr("", "value"));
    GIVES(PMI2_ERR_INVALID_KEY_LENGTH, PMI2_Info_PutNodeAttr(key_65, "value"));
    GIVES(PMI2_ERR_INVALID_VAL, PMI2_Info_PutNodeAttr("name", NULL));
    GIVES(PMI2_ERR_INVALID_VAL_LENGTH, PMI2_Info_PutNodeAttr("name", value_1025));
    GIVES(PMI2_SUCCESS, PMI2_Info_PutNodeAttr(key_64, value_1024));
    GIVES(PMI2_SUCCESS, PMI2_Info_GetNodeAttr(key_64, text, sizeof text, &number, 0));
    CHECK(number == 1 && !strcmp(text, value_1024));
    GIVES(PMI2_SUCCESS, PMI2_Info_PutNodeAttr("text", "abcdef"));
    GIVES(PMI2_SUCCESS, PMI2_Info_PutNodeAttr("list", "1,-2, 3"));
    GIVES(PMI2_SUCCESS, PMI2_Info_PutNodeAttr("none", ""));
    GIVES(PMI2_SUCCESS, PMI2_Info_GetNodeAttr("text", text, 7, &number, 1));
    CHECK(number == 1 && !strcmp(text, "abcdef"));
    number = -1;
    GIVES(PMI2_ERR_NOMEM, PMI2_Info_GetNodeAttr("text", text, 6, &number, 0));
    CHECK(number == 1 && !strcmp(text, "abcde"));
    GIVES(PMI2_SUCCESS, PMI2_Info_GetNodeAttr("nobody-puts-this", text, 6, &number, 0));
    CHECK(number == 0 && !strcmp(text, "abcde"));
    GIVES(PMI2_ERR_INVALID_KEY, PMI2_Info_GetNodeAttr("", text, 6, &number, 0));
    GIVES(PMI2_ERR_INVALID_KEY_LENGTH, PMI2_Info_GetNodeAttr(key_65, text, 6, &number, 1));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Info_GetNodeAttr("text", NULL, 6, &number, 0));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Info_GetNodeAttr("text", text, 6, NULL, 0));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMI2_Info_GetNodeAttr("text", text, 0, &number, 0));
    GIVES(PMI2_SUCCESS, PMI2_Info_GetNodeAttrIntArray("list", array, 8, &number, &other));
    CHECK(other == 1 && number == 3 && array[0] == 1 && array[1] == -2 && array[2] == 3);
    array[2] = 99;
    GIVES(PMI2_SUCCESS, PMI2_Info_GetNodeAttrIntArray("list", array, 2, &number, &other));
    CHECK(other == 1 && number == 2 && array[2] == 99);
    GIVES(PMI2_SUCCESS, PMI2_Info_GetNodeAttrIntArray("list", NULL, 0, &number, &other));
    CHECK(other == 1 && number == 0);
    GIVES(PMI2_SUCCESS, PMI2_Info_GetNodeAttrIntArray("none", array, 8, &number, &other));
    CHECK(other == 1 && number == 0);
    GIVES(PMI2_SUCCESS, PMI2_Info_GetNodeAttrIntArray("nobody-puts-this", array, 8, &number, &other));
    CHECK(other == 0 && number == 0);
    GIVES(PMI2_ERR_INVALID_VAL, PMI2_Info_GetNodeAttrIntArray("text", array, 8, &number, &other));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMI2_Info_GetNodeAttrIntArray("list", array, -1, &number, &other));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Info_GetNodeAttrIntArray("list", NULL, 1, &number, &other));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Info_GetNodeAttrIntArray("list", array, 8, NULL, &other));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Info_GetNodeAttrIntArray("list", array, 8, &number, NULL));
    GIVES(PMI2_SUCCESS, PMI2_Info_GetJobAttr("PMI_process_mapping", text, sizeof text, &number));
    CHECK(number == 1 && !strncmp(text, "(vector,", 8));
    GIVES(PMI2_ERR_NOMEM, PMI2_Info_GetJobAttr("PMI_process_mapping", text, 8, &number));
    CHECK(number == 1 && !strcmp(text, "(vector"));
    GIVES(PMI2_SUCCESS, PMI2_Info_GetJobAttr("no-such-attribute", text, sizeof text, &number));
    CHECK(number == 0);
    GIVES(PMI2_ERR_INVALID_KEY, PMI2_Info_GetJobAttr(NULL, text, sizeof text, &number));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMI2_Info_GetJobAttr("universeSize", text, -1, &number));
    GIVES(PMI2_ERR_INVALID_VAL, PMI2_Info_GetJobAttrIntArray("PMI_process_mapping", array, 8, &number, &other));
    GIVES(PMI2_SUCCESS, PMI2_Info_GetJobAttrIntArray("universeSize", array, 8, &number, &other));
    CHECK(alone ? other == 0 : other == 1 && number == 1 && array[0] == size);
}

// Shows: pmi2.h, Job | `PMIX_Ring` `value`, `left`, `right` | the values of both neighbours | done
// Also: libraries `interop::functions::a_ring_of_hundreds`, `pmi2::nodes::the_calls_of_one_job`
// Shows: pmi2.h, Job | `PMIX_Ring` `maxvalue` | size of all three buffers | done
// Shows: pmi2.h, Job | `PMIX_Ring` `rank`, `ranks` | position in the ring, its length; the position may differ from
// the rank | free: equal to the rank
static void test_ring(void)
{
    char mine[16], wanted[16], left[16], right[16];
    GIVES(PMI2_ERR_INVALID_VAL, PMIX_Ring(NULL, &number, &other, left, right, 16));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMIX_Ring("x", &number, &other, left, right, 0));
    GIVES(PMI2_ERR_INVALID_VAL_LENGTH, PMIX_Ring("1234", &number, &other, left, right, 4));
    GIVES(PMI2_ERR_INVALID_ARG, PMIX_Ring("x", NULL, &other, left, right, 16));
    GIVES(PMI2_ERR_INVALID_ARG, PMIX_Ring("x", &number, NULL, left, right, 16));
    GIVES(PMI2_ERR_INVALID_ARG, PMIX_Ring("x", &number, &other, NULL, right, 16));
    GIVES(PMI2_ERR_INVALID_ARG, PMIX_Ring("x", &number, &other, left, NULL, 16));
    snprintf(mine, sizeof mine, "r;%d", rank);
    strcpy(left, mine);
    GIVES(PMI2_SUCCESS, PMIX_Ring(left, &number, &other, left, right, 16));
    CHECK(number == rank && other == size);
    snprintf(wanted, sizeof wanted, "r;%d", (rank + size - 1) % size);
    CHECK(!strcmp(left, wanted));
    snprintf(wanted, sizeof wanted, "r;%d", (rank + 1) % size);
    CHECK(!strcmp(right, wanted));
}

// Shows: pmi2.h, Name service | `PMI2_Nameserv_publish` `service_name`, `port` | publishes a name | done: once
// Also: libraries `interop::functions::names`
// Shows: pmi2.h, Name service | `PMI2_Nameserv_lookup` `service_name`, `port`, `portLen` | the port of a name | done
// Also: libraries `interop::functions::names`
// Shows: pmi2.h, Name service | `PMI2_Nameserv_unpublish` `service_name` | withdraws a name | done: by any process
// Also: libraries `interop::functions::names`
// Shows: pmi2.h, Name service | `info_ptr` of all three | no meaning is given | free: ignored
static void test_names(void)
{
    char name[32], long_name[200], long_port[1200];
    const MPID_Info info = {.key = "no-such-key", .value = "value"};
    snprintf(name, sizeof name, "name of %d", rank);
    memset(long_name, 'n', sizeof long_name - 1), long_name[sizeof long_name - 1] = '\0';
    memset(long_port, 'p', sizeof long_port - 1), long_port[sizeof long_port - 1] = '\0';
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Nameserv_publish(NULL, NULL, "port"));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Nameserv_publish("", NULL, "port"));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Nameserv_publish(name, NULL, NULL));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMI2_Nameserv_publish(long_name, NULL, "port"));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMI2_Nameserv_publish(name, NULL, long_port));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMI2_Nameserv_publish(name, NULL, huge));
    GIVES(PMI2_ERR_OTHER, PMI2_Nameserv_lookup(name, NULL, text, sizeof text));
    GIVES(PMI2_ERR_OTHER, PMI2_Nameserv_unpublish(name, NULL));
    GIVES(PMI2_SUCCESS, PMI2_Nameserv_publish(name, &info, "tag#0$a;b$ c=d"));
    GIVES(PMI2_ERR_OTHER, PMI2_Nameserv_publish(name, NULL, "another"));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Nameserv_lookup(NULL, NULL, text, sizeof text));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Nameserv_lookup(name, NULL, NULL, 9));
    GIVES(PMI2_ERR_INVALID_LENGTH, PMI2_Nameserv_lookup(name, NULL, text, 0));
    GIVES(PMI2_ERR_NOMEM, PMI2_Nameserv_lookup(name, NULL, text, 5));
    CHECK(!strcmp(text, "tag#"));
    GIVES(PMI2_SUCCESS, PMI2_Nameserv_lookup(name, &info, text, sizeof text));
    CHECK(!strcmp(text, "tag#0$a;b$ c=d"));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Nameserv_unpublish("", NULL));
    GIVES(PMI2_SUCCESS, PMI2_Nameserv_unpublish(name, &info));
    GIVES(PMI2_ERR_OTHER, PMI2_Nameserv_unpublish(name, NULL));
}

static int spawn(int count, const char *command, int argc, const char **argv, int procs, int infos,
                 const MPID_Info *info, int preputs, const MPID_Info *preput, int room)
{
    int errors[1] = {0};
    return PMI2_Job_Spawn(count, &command, &argc, &argv, &procs, &infos, &info, preputs, &preput, text, room, errors);
}

/* No spawn here gets as far as to start something. */
// Shows: pmi2.h, Return codes | `PMI2_ERR_INVALID_NUM_ARGS`, `_ARGS` | a number of arguments, or an argument | done
// Shows: pmi2.h, Return codes | `PMI2_ERR_INVALID_KEYVALP` | an invalid pair | done
// Shows: pmi2.h, Return codes | `PMI2_ERR_INVALID_SIZE` | an invalid size | done
// Shows: pmi2.h, Return codes | `PMI2_ERR_OTHER` | other errors | done
// Shows: pmi2.h, Spawn | `errors` | a code for each command | done: 0, `errno` of a program that cannot be started,
// or 125 of another one of such a spawn; on one host and on several
// Also: hydrant-client `a_code_for_each_program`, nodes `dynamic::each_program_of_a_refused_spawn_has_its_code`
static void test_spawn(int alone)
{
    const char *argv[] = {"x", NULL}, *missing = "/no/such/program";
    MPID_Info good = {.key = "wdir", .value = "/"}, no_key = {.key = "", .value = "/"}, no_value = {.key = "wdir"};
    MPID_Info long_key = {.key = key_65, .value = "x"}, long_value = {.key = "x", .value = value_1025};
    int procs = 1, error = -1;
    GIVES(PMI2_ERR_INVALID_NUM_ARGS, spawn(0, missing, 0, NULL, 1, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_NUM_ARGS, spawn(-1, missing, 0, NULL, 1, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_NUM_ARGS, spawn(1, missing, -1, argv, 1, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_ARGS, spawn(1, missing, 1, NULL, 1, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_ARGS, spawn(1, missing, 2, argv, 1, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_ARG, spawn(1, NULL, 0, NULL, 1, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_ARG, spawn(1, "", 0, NULL, 1, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_ARG, spawn(1, missing, 0, NULL, 0, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_SIZE, spawn(1, missing, 0, NULL, 1, -1, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_SIZE, spawn(1, missing, 0, NULL, 1, 0, NULL, -1, NULL, 99));
    GIVES(PMI2_ERR_INVALID_SIZE, spawn(1, missing, 0, NULL, 1, 0, NULL, 0, NULL, 0));
    GIVES(PMI2_ERR_INVALID_KEYVALP, spawn(1, missing, 0, NULL, 1, 1, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_KEYVALP, spawn(1, missing, 0, NULL, 1, 1, &no_key, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_KEYVALP, spawn(1, missing, 0, NULL, 1, 1, &no_value, 0, NULL, 99));
    GIVES(PMI2_ERR_INVALID_KEYVALP, spawn(1, missing, 0, NULL, 1, 0, NULL, 1, NULL, 99));
    GIVES(PMI2_ERR_INVALID_KEYVALP, spawn(1, missing, 0, NULL, 1, 0, NULL, 1, &no_key, 99));
    GIVES(PMI2_ERR_INVALID_KEY_LENGTH, spawn(1, missing, 0, NULL, 1, 0, NULL, 1, &long_key, 99));
    GIVES(PMI2_ERR_INVALID_VAL_LENGTH, spawn(1, missing, 0, NULL, 1, 0, NULL, 1, &long_value, 99));
    GIVES(PMI2_ERR_INVALID_LENGTH, spawn(1, huge, 0, NULL, 1, 0, NULL, 0, NULL, 99));
    GIVES(PMI2_ERR_OTHER, spawn(1, missing, 1, argv, 1, 1, &good, 1, &good, 99));
    /* Arrays with nothing in them may be missing. */
    GIVES(PMI2_ERR_OTHER, PMI2_Job_Spawn(1, &missing, NULL, NULL, &procs, NULL, NULL, 0, NULL, text, 99, NULL));
    GIVES(PMI2_ERR_OTHER, PMI2_Job_Spawn(1, &missing, NULL, NULL, &procs, NULL, NULL, 0, NULL, text, 99, &error));
    CHECK(alone ? error == -1 : error == 2 /* ENOENT */);
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_Spawn(1, NULL, NULL, NULL, &procs, NULL, NULL, 0, NULL, text, 99, NULL));
    GIVES(PMI2_ERR_INVALID_ARG, PMI2_Job_Spawn(1, &missing, NULL, NULL, NULL, NULL, NULL, 0, NULL, text, 99, NULL));
}

// Shows: pmi2.h, Joining and leaving | `PMI2_Initialized` | nonzero after a successful init | done; also after finalize
int main(int argc, char **argv)
{
    int alone = argc > 1 && !strcmp(argv[1], "alone");
    fill();
    CHECK(!PMI2_Initialized());
    test_uninitialized();
    start();
    CHECK(!alone || (size == 1 && rank == 0 && !spawned && appnum == 0));
    /* Programs that this one starts do not keep the connection open. */
    if (getenv("PMI_FD"))
        CHECK(fcntl(atoi(getenv("PMI_FD")), F_GETFD) == FD_CLOEXEC);
    test_job();
    test_kvs();
    test_attributes(alone);
    test_ring();
    test_names();
    test_spawn(alone);
    GIVES(PMI2_SUCCESS, PMI2_KVS_Fence());
    GIVES(PMI2_SUCCESS, PMI2_Finalize());
    CHECK(PMI2_Initialized());
    test_uninitialized();
    GIVES(PMI2_ERR_INIT, PMI2_Init(&spawned, &size, &rank, &appnum));
    SAY("codes of rank %d of %d are right", rank, size);
    return 0;
}
