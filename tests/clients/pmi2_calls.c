/* Functions of pmi2.h within one job, with valid and invalid arguments.
 *
 *   pmi2_calls init | kvs | node | local[-array|-missing] | given | job | ring | names
 */
#include "pmi2_check.h"

static void test_init(void)
{
    int other = -1, again[4];
    CHECK(!PMI2_Initialized());
    start();
    CHECK(rank >= 0 && rank < size && appnum >= 0 && !spawned);
    /* The library repeats the handshake on the same connection. */
    OK(PMI2_Init(&again[0], &again[1], &again[2], &again[3]));
    CHECK(again[0] == spawned && again[1] == size && again[2] == rank && again[3] == appnum);
    OK(PMI2_Job_GetRank(&other));
    CHECK(other == rank);
    OK(PMI2_Info_GetSize(&other));
    SAY("rank %d of %d appnum %d, %d on this node, job %s", rank, size, appnum, other, *jobid ? "named" : "-");
}

static char *filled(char *text, int length, int with)
{
    memset(text, with, length);
    text[length] = '\0';
    return text;
}

static void test_kvs(void)
{
    static char key[PMI2_MAX_KEYLEN + 200], value[70 * 1024], small[4];
    int length;
    start();
    snprintf(key, sizeof key, "semicolons-%d", rank);
    OK(PMI2_KVS_Put(key, "a;b=c;;d; "));
    check_value(NULL, PMI2_ID_NULL, key, "a;b=c;;d; ");
    /* The maximum length, including the NUL. */
    filled(key, PMI2_MAX_KEYLEN - 1, 'a' + rank);
    OK(PMI2_KVS_Put(key, filled(value, PMI2_MAX_VALLEN - 1, 'v')));
    OK(PMI2_KVS_Fence());
    for (int i = 0; i < size; i++) {
        filled(key, PMI2_MAX_KEYLEN - 1, 'a' + i);
        check_value(jobid, i, key, filled(value, PMI2_MAX_VALLEN - 1, 'v'));
        snprintf(key, sizeof key, "semicolons-%d", i);
        check_value(NULL, i, key, "a;b=c;;d; ");
        /* The hint may be wrong. */
        check_value("", (i + 1) % size, key, "a;b=c;;d; ");
        /* For a buffer that is too small, the needed size is returned. */
        PMI2_KVS_Get(NULL, i, key, small, sizeof small, &length);
        CHECK(length == -10 || length == -11);
    }
    FAILS(PMI2_KVS_Put(filled(key, PMI2_MAX_KEYLEN + 100, 'k'), "value"));
    FAILS(PMI2_KVS_Put("long", filled(value, PMI2_MAX_VALLEN + 1, 'v')));
    FAILS(PMI2_KVS_Put("longer", filled(value, 68 * 1024, 'v')));
    FAILS(PMI2_KVS_Put("", "value"));
    FAILS(has_key(NULL, filled(key, PMI2_MAX_KEYLEN + 100, 'k')) ? PMI2_SUCCESS : PMI2_FAIL);
    FAILS(has_key(NULL, "") ? PMI2_SUCCESS : PMI2_FAIL);
    FAILS(has_key(NULL, "no-such-key") ? PMI2_SUCCESS : PMI2_FAIL);
    FAILS(has_key("no-such-job", "semicolons-0") ? PMI2_SUCCESS : PMI2_FAIL);
    CHECK(!has_key(NULL, "long") && !has_key(NULL, "longer"));
    /* The stored value is unchanged. */
    check_value(NULL, PMI2_ID_NULL, "semicolons-0", "a;b=c;;d; ");
    OK(PMI2_KVS_Fence());
    SAY("kvs of rank %d done", rank);
}

static void test_node(void)
{
    char value[PMI2_MAX_ATTRVALUE] = "";
    int found = -1, array[64], length = -1;
    start();
    OK(PMI2_Info_GetNodeAttr("nobody-puts-this", value, sizeof value, &found, 0));
    CHECK(!found);
    /* All ranks but the last wait for the value of the last. */
    if (rank == size - 1)
        OK(PMI2_Info_PutNodeAttr("put-late", "by;the;last"));
    OK(PMI2_Info_GetNodeAttr("put-late", value, sizeof value, &found, 1));
    CHECK(found && !strcmp(value, "by;the;last"));
    found = -1;
    OK(PMI2_Info_GetNodeAttrIntArray("localRanksCount", array, 64, &length, &found));
    CHECK(found && length == 1 && array[0] == size);
    length = found = -1;
    OK(PMI2_Info_GetNodeAttrIntArray("localRanks", array, 64, &length, &found));
    CHECK(found && length == size);
    for (int i = 0; i < size; i++)
        CHECK(array[i] == i);
    /* An array that is too short. */
    array[1] = -7;
    length = found = -1;
    OK(PMI2_Info_GetNodeAttrIntArray("localRanks", array, 1, &length, &found));
    CHECK(found && length == 1 && array[0] == 0 && array[1] == -7);
    OK(PMI2_Info_GetNodeAttrIntArray("cartCoords", array, 64, &length, &found));
    CHECK(!found);
    OK(PMI2_Info_GetNodeAttrIntArray("no-such-array", array, 64, &length, &found));
    CHECK(!found);
    OK(PMI2_Info_GetNodeAttr("memPoolType", value, sizeof value, &found, 0));
    CHECK(!found);
    FAILS(PMI2_Info_PutNodeAttr("", "value"));
    OK(PMI2_KVS_Fence());
    SAY("node of rank %d done", rank);
}

/* All ranks of the node, which are all ranks of the job. `missing`: the library finds no list. */
static void test_local(int counted, int missing)
{
    int count = -1, length = -1, found = -1, *array;
    start();
    array = calloc(size + 1, sizeof *array);
    CHECK(array);
    if (counted) {
        OK(PMI2_Info_GetNodeAttrIntArray("localRanksCount", &count, 1, &length, &found));
        CHECK(found && length == 1 && count == size);
    }
    length = found = -1;
    OK(PMI2_Info_GetNodeAttrIntArray("localRanks", array, size + 1, &length, &found));
    CHECK(missing ? !found : found && length == size);
    for (int i = 0; i < length; i++)
        CHECK(array[i] == i);
    free(array);
    OK(PMI2_KVS_Fence());
    SAY("%d local ranks of rank %d", length, rank);
}

static void say_job_attribute(const char *name)
{
    char value[PMI2_MAX_ATTRVALUE] = "";
    int found = -1;
    OK(PMI2_Info_GetJobAttr(name, value, sizeof value, &found));
    SAY("%s: %s", name, found ? value : "not found");
}

/* Attributes that the user or the launcher sets. */
static void test_given(void)
{
    static const char *names[] = {"site", "physTopology", "physTopologyLevels", "cartDims"};
    char value[PMI2_MAX_ATTRVALUE] = "";
    int array[8], length = 0, found = -1;
    start();
    for (unsigned i = 0; rank == 0 && i < sizeof names / sizeof *names; i++)
        say_job_attribute(names[i]);
    OK(PMI2_Info_GetNodeAttr("rack", value, sizeof value, &found, 1));
    CHECK(found && !strcmp(value, "3;4"));
    OK(PMI2_Info_GetNodeAttr("site", value, sizeof value, &found, 0));
    CHECK(!found);
    OK(PMI2_Info_GetNodeAttrIntArray("cartCoords", array, 8, &length, &found));
    SAY("rank %d at %d,%d of %d", rank, array[0], array[1], found ? length : -1);
    OK(PMI2_Info_GetJobAttrIntArray("cartDims", array, 8, &length, &found));
    CHECK(found && length == 2 && array[0] == 2 && array[1] == 3);
    OK(PMI2_KVS_Fence());
    /* A rank may put another value. */
    OK(PMI2_Info_PutNodeAttr("rack", "5"));
    OK(PMI2_Info_GetNodeAttr("rack", value, sizeof value, &found, 0));
    CHECK(found && !strcmp(value, "5"));
}

static void test_job(void)
{
    static const char *names[] = {"universeSize",       "hasNameServ",        "physTopology",        "physTopologyLevels",
                                  "cartDims",           "isHeterogeneous",    "PMI_process_mapping", "PMI_dead_processes",
                                  "no-such-attribute", "mpi_reserved_ports", "PMI_netinfo_of_task"};
    int array[8], length = -1, found = -1;
    start();
    for (unsigned i = 0; rank == 0 && i < sizeof names / sizeof *names; i++)
        say_job_attribute(names[i]);
    OK(PMI2_Info_GetJobAttrIntArray("universeSize", array, 8, &length, &found));
    CHECK(found && length == 1);
    SAY("universe of rank %d: %d", rank, array[0]);
    OK(PMI2_Info_GetJobAttrIntArray("no-such-array", array, 8, &length, &found));
    CHECK(!found);
    OK(PMI2_KVS_Fence());
}

static void test_ring(void)
{
    char mine[64], left[64] = "", right[64] = "", wanted[64];
    int at = -1, ranks = -1;
    start();
    for (int round = 0; round < 3; round++) {
        snprintf(mine, sizeof mine, "%d;of;%d", rank, round);
        OK(PMIX_Ring(mine, &at, &ranks, left, right, sizeof left));
        CHECK(ranks == size && at == rank);
        snprintf(wanted, sizeof wanted, "%d;of;%d", (rank + size - 1) % size, round);
        CHECK(!strcmp(left, wanted));
        snprintf(wanted, sizeof wanted, "%d;of;%d", (rank + 1) % size, round);
        CHECK(!strcmp(right, wanted));
    }
    SAY("ring of rank %d: %d of %d", rank, at, ranks);
}

static void test_names(void)
{
    char port[256] = "";
    start();
    FAILS(PMI2_Nameserv_lookup("no-such-name", NULL, port, sizeof port));
    FAILS(PMI2_Nameserv_unpublish("no-such-name", NULL));
    FAILS(PMI2_Nameserv_publish("", NULL, "port"));
    if (rank == 0) {
        OK(PMI2_Nameserv_publish("a name", NULL, "tag#0$a;b$ c=d"));
        FAILS(PMI2_Nameserv_publish("a name", NULL, "other"));
    }
    OK(PMI2_KVS_Fence());
    OK(PMI2_Nameserv_lookup("a name", NULL, port, sizeof port));
    CHECK(!strcmp(port, "tag#0$a;b$ c=d"));
    OK(PMI2_KVS_Fence());
    /* Any rank may unpublish a name, once. */
    if (rank == size - 1) {
        OK(PMI2_Nameserv_unpublish("a name", NULL));
        FAILS(PMI2_Nameserv_unpublish("a name", NULL));
    }
    OK(PMI2_KVS_Fence());
    FAILS(PMI2_Nameserv_lookup("a name", NULL, port, sizeof port));
    SAY("names of rank %d done", rank);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "init"))
        test_init();
    else if (!strcmp(what, "kvs"))
        test_kvs();
    else if (!strcmp(what, "node"))
        test_node();
    else if (!strncmp(what, "local", 5))
        test_local(strcmp(what, "local-array"), !strcmp(what, "local-missing"));
    else if (!strcmp(what, "given"))
        test_given();
    else if (!strcmp(what, "job"))
        test_job();
    else if (!strcmp(what, "ring"))
        test_ring();
    else if (!strcmp(what, "names"))
        test_names();
    else
        CHECK(!"a known test");
    OK(PMI2_Finalize());
    return 0;
}
