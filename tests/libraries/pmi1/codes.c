/* Every function of pmi.h with right and with wrong arguments, and the code that each call has to give. Runs as a job of any
 * size under hydrant, or alone.
 *
 *   codes            every call, in a job
 *   codes alone      the same, as a singleton
 *   codes messages   gets of values that hydrant shares take no message
 *   codes abort      the last rank ends the job with code 37
 */
// Test: libraries `pmi1::every_code_where_it_belongs`
#include <pmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int size = -1, rank = -1, spawned = -1;

#define CHECK(what)                                                                           \
    do {                                                                                      \
        if (!(what)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: not so: %s\n", rank, __FILE__, __LINE__, #what); \
            exit(97);                                                                         \
        }                                                                                     \
    } while (0)
#define GIVES(code, call)                                                                                         \
    do {                                                                                                          \
        int rc_ = (call);                                                                                         \
        if (rc_ != (code)) {                                                                                      \
            fprintf(stderr, "rank %d: %s:%d: %s gave %d, not %s\n", rank, __FILE__, __LINE__, #call, rc_, #code); \
            exit(97);                                                                                             \
        }                                                                                                         \
    } while (0)

#include "../../clients/say.h"
#include "../pmi2/between.h"

static char space[257], text[2048], key_64[65], key_65[66], value_1024[1025], value_1025[1026];
static int number;

// Shows: pmi.h | `PMI_Init`, `PMI_Initialized`, `PMI_Finalize` | join, state, leave | done; a singleton has a server
// inside the process
// Also: libraries `pmi1::every_code_alone`
static void test_outside(int was_joined)
{
    GIVES(PMI_ERR_INVALID_ARG, PMI_Initialized(NULL));
    GIVES(PMI_SUCCESS, PMI_Initialized(&number));
    CHECK(number == was_joined);
    GIVES(PMI_SUCCESS, PMI_Finalize());
    GIVES(PMI_FAIL, PMI_Get_size(&number));
    GIVES(PMI_FAIL, PMI_Get_rank(&number));
    GIVES(PMI_FAIL, PMI_Get_universe_size(&number));
    GIVES(PMI_FAIL, PMI_Get_appnum(&number));
    GIVES(PMI_FAIL, PMI_Get_id(text, sizeof text));
    GIVES(PMI_FAIL, PMI_Get_clique_size(&number));
    GIVES(PMI_FAIL, PMI_Barrier());
    GIVES(PMI_FAIL, PMI_Barrier_group(PMI_GROUP_SELF, 0, NULL));
    GIVES(PMI_FAIL, PMI_KVS_Get_my_name(text, sizeof text));
    GIVES(PMI_FAIL, PMI_KVS_Put("space", "key", "value"));
    GIVES(PMI_FAIL, PMI_KVS_Get("space", "key", text, sizeof text));
    GIVES(PMI_FAIL, PMI_KVS_Commit("space"));
    GIVES(PMI_FAIL, PMI_Publish_name("name", "port"));
    GIVES(PMI_FAIL, PMI_Spawn_multiple(1, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL));
    GIVES(PMI_SUCCESS, PMI_KVS_Get_key_length_max(&number));
    CHECK(number == 64);
}

// Shows: pmi.h | `PMI_Get_size`, `PMI_Get_rank`, `PMI_Get_universe_size`, `PMI_Get_appnum`, `PMI_Get_id`,
// `PMI_Get_kvs_domain_id` | values of the job | done; -1 for a number that the server does not know
// Shows: pmi.h | `PMI_Get_clique_size`, `PMI_Get_clique_ranks` | the ranks of the node | done, from
// `PMI_process_mapping`
static void test_job(int alone)
{
    int again = -1, ranks[64];
    GIVES(PMI_ERR_INVALID_ARG, PMI_Init(NULL));
    GIVES(PMI_SUCCESS, PMI_Init(&again));
    CHECK(again == spawned);
    GIVES(PMI_ERR_INVALID_ARG, PMI_Get_size(NULL));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Get_rank(NULL));
    GIVES(PMI_SUCCESS, PMI_Get_universe_size(&number));
    CHECK(alone ? number == -1 : number == size);
    GIVES(PMI_SUCCESS, PMI_Get_appnum(&number));
    CHECK(number == 0);
    GIVES(PMI_SUCCESS, PMI_Get_id_length_max(&number));
    CHECK(number == 256);
    GIVES(PMI_SUCCESS, PMI_Get_id(text, number));
    CHECK(!strcmp(text, space));
    GIVES(PMI_SUCCESS, PMI_Get_kvs_domain_id(text, number));
    CHECK(!strcmp(text, space));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Get_id(NULL, 9));
    GIVES(PMI_ERR_INVALID_LENGTH, PMI_Get_id(text, 0));
    GIVES(PMI_ERR_INVALID_LENGTH, PMI_Get_id(text, (int)strlen(space)));
    CHECK(strlen(text) == strlen(space) - 1);
    GIVES(PMI_SUCCESS, PMI_Get_clique_size(&number));
    CHECK(number == size);
    GIVES(PMI_SUCCESS, PMI_Get_clique_ranks(ranks, 64));
    for (int i = 0; i < size; i++) CHECK(ranks[i] == i);
    GIVES(PMI_ERR_INVALID_ARG, PMI_Get_clique_ranks(NULL, 1));
    GIVES(PMI_ERR_INVALID_LENGTH, PMI_Get_clique_ranks(ranks, 0));
    GIVES(PMI_ERR_INVALID_LENGTH, PMI_Get_clique_ranks(ranks, size - 1));
}

// Shows: pmi.h | return codes | a code for each wrong argument | done: those of Slurm's library for init, ranks,
// spaces and keys, where both were compared. Ours are stricter for an empty key, an empty buffer and a NULL buffer of
// `PMI_Get_id`
// Shows: pmi.h | `PMI_KVS_Commit` | values are not visible before it | free: puts are visible at once, as in MPICH's
// library
// Shows: pmi.h | `PMI_KVS_Create`, `PMI_KVS_Destroy` | more key-value spaces | not: `PMI_FAIL`, because servers of
// PMI-1 have one space a job
// Shows: pmi.h | `PMI_KVS_Iter_first`, `PMI_KVS_Iter_next` | all keys of a space | not: `PMI_FAIL`, because PMI-1 has
// no request for them
static void test_space(void)
{
    char key[32];
    GIVES(PMI_SUCCESS, PMI_KVS_Get_value_length_max(&number));
    CHECK(number == 1024);
    GIVES(PMI_ERR_INVALID_ARG, PMI_KVS_Get_value_length_max(NULL));
    GIVES(PMI_ERR_INVALID_LENGTH, PMI_KVS_Get_my_name(text, 2));
    snprintf(key, sizeof key, "rank-%d", rank);
    GIVES(PMI_SUCCESS, PMI_KVS_Put(space, key, "a b=c;d"));
    GIVES(PMI_SUCCESS, PMI_KVS_Put(space, rank ? key : key_64, rank ? "a b=c;d" : value_1024));
    GIVES(PMI_ERR_INVALID_KVS, PMI_KVS_Put(NULL, "k", "v"));
    GIVES(PMI_ERR_INVALID_KVS, PMI_KVS_Put("none", "k", "v"));
    GIVES(PMI_ERR_INVALID_KEY, PMI_KVS_Put(space, NULL, "v"));
    GIVES(PMI_ERR_INVALID_KEY, PMI_KVS_Put(space, "", "v"));
    GIVES(PMI_ERR_INVALID_KEY, PMI_KVS_Put(space, key_65, "v"));
    GIVES(PMI_ERR_INVALID_VAL, PMI_KVS_Put(space, "k", NULL));
    GIVES(PMI_ERR_INVALID_VAL, PMI_KVS_Put(space, "k", value_1025));
    GIVES(PMI_SUCCESS, PMI_KVS_Commit(space));
    GIVES(PMI_ERR_INVALID_ARG, PMI_KVS_Commit(NULL));
    GIVES(PMI_SUCCESS, PMI_Barrier());
    for (int other = 0; other < size; other++) {
        snprintf(key, sizeof key, "rank-%d", other);
        GIVES(PMI_SUCCESS, PMI_KVS_Get(space, key, text, sizeof text));
        CHECK(!strcmp(text, "a b=c;d"));
    }
    GIVES(PMI_SUCCESS, PMI_KVS_Get(space, key_64, text, 1025));
    CHECK(!strcmp(text, value_1024));
    GIVES(PMI_ERR_INVALID_LENGTH, PMI_KVS_Get(space, key_64, text, 1024));
    CHECK(strlen(text) == 1023);
    GIVES(PMI_ERR_INVALID_LENGTH, PMI_KVS_Get(space, key_64, text, 0));
    GIVES(PMI_ERR_INVALID_VAL, PMI_KVS_Get(space, key_64, NULL, 9));
    GIVES(PMI_ERR_INVALID_KEY, PMI_KVS_Get(space, "none", text, 9));
    GIVES(PMI_ERR_INVALID_KEY, PMI_KVS_Get(space, NULL, text, 9));
    GIVES(PMI_ERR_INVALID_KVS, PMI_KVS_Get("none", key, text, 9));
    GIVES(PMI_ERR_INVALID_KVS, PMI_KVS_Get(NULL, key, text, 9));
    GIVES(PMI_FAIL, PMI_KVS_Create(text, sizeof text));
    GIVES(PMI_ERR_INVALID_ARG, PMI_KVS_Destroy(NULL));
    GIVES(PMI_FAIL, PMI_KVS_Destroy("none"));
    GIVES(PMI_FAIL, PMI_KVS_Iter_first(space, text, 65, text + 65, 1025));
    GIVES(PMI_FAIL, PMI_KVS_Iter_next(space, text, 65, text + 65, 1025));
}

// Shows: pmi.h | `PMI_Barrier_group` | a barrier of some ranks, with a tag | partly: barriers of several threads wait
// for each other
static void test_groups(void)
{
    int all[64], wrong[] = {-1, 0};
    for (int i = 0; i < size; i++) all[i] = i;
    GIVES(PMI_SUCCESS, PMI_Barrier_group(PMI_GROUP_SELF, 0, NULL));
    GIVES(PMI_SUCCESS, PMI_Barrier_group(PMI_GROUP_WORLD, 0, NULL));
    GIVES(PMI_SUCCESS, PMI_Barrier_group(PMI_GROUP_NODE, 0, "node"));
    GIVES(PMI_SUCCESS, PMI_Barrier_group(all, size, "all"));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Barrier_group(wrong, 2, NULL));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Barrier_group(all, 0, NULL));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Barrier_group(all, -1, NULL));
    /* Each rank waits with itself alone, and the first two with each other. */
    GIVES(PMI_SUCCESS, PMI_Barrier_group(&rank, 1, NULL));
    if (size > 1 && rank < 2) GIVES(PMI_SUCCESS, PMI_Barrier_group(all, 2, "two"));
}

// Shows: pmi.h | `PMI_Publish_name`, `PMI_Lookup_name`, `PMI_Unpublish_name` | names | done
static void test_names(void)
{
    char name[32];
    snprintf(name, sizeof name, "name-%d", rank);
    GIVES(PMI_ERR_INVALID_ARG, PMI_Publish_name(NULL, "port"));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Publish_name(name, NULL));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Unpublish_name(""));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Lookup_name(name, NULL));
    GIVES(PMI_SUCCESS, PMI_Publish_name(name, "port#1"));
    GIVES(PMI_FAIL, PMI_Publish_name(name, "port#2"));
    GIVES(PMI_SUCCESS, PMI_Lookup_name(name, text));
    CHECK(!strcmp(text, "port#1"));
    GIVES(PMI_SUCCESS, PMI_Unpublish_name(name));
    GIVES(PMI_FAIL, PMI_Unpublish_name(name));
}

// Shows: pmi.h | `PMI_Parse_option`, `PMI_Args_to_keyval`, `PMI_Free_keyvals`, `PMI_Get_options` | options of the
// process manager | done: there are none
static void test_options(void)
{
    char *words[] = {"-n", "2", NULL};
    char *(*argv)[] = &words;
    int argc = 2, parsed = -1, length = sizeof text;
    PMI_keyval_t pair, *pairs = &pair;
    GIVES(PMI_ERR_INVALID_NUM_ARGS, PMI_Parse_option(0, words, &parsed, &pairs, &number));
    GIVES(PMI_ERR_INVALID_ARGS, PMI_Parse_option(2, NULL, &parsed, &pairs, &number));
    GIVES(PMI_ERR_INVALID_NUM_PARSED, PMI_Parse_option(2, words, NULL, &pairs, &number));
    GIVES(PMI_ERR_INVALID_KEYVALP, PMI_Parse_option(2, words, &parsed, NULL, &number));
    GIVES(PMI_ERR_INVALID_SIZE, PMI_Parse_option(2, words, &parsed, &pairs, NULL));
    GIVES(PMI_SUCCESS, PMI_Parse_option(2, words, &parsed, &pairs, &number));
    CHECK(parsed == 0 && pairs == NULL && number == 0);
    GIVES(PMI_SUCCESS, PMI_Args_to_keyval(&argc, argv, &pairs, &number));
    CHECK(argc == 2 && pairs == NULL && number == 0);
    GIVES(PMI_SUCCESS, PMI_Free_keyvals(pairs, number));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Free_keyvals(&pair, 1));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Get_options(text, NULL));
    GIVES(PMI_SUCCESS, PMI_Get_options(text, &length));
    CHECK(length == 0 && !*text);
}

// Shows: pmi.h | `PMI_Spawn_multiple` | processes, info, preput, a code for each command | done
static void test_spawn(const char *self, int alone)
{
    const char *words[] = {"child", NULL}, **argvs[] = {words, words}, *commands[] = {self, self}, *none[] = {""};
    const int processes[] = {1, 2}, infos[] = {0, 1}, zero = 0;
    const PMI_keyval_t info[] = {{"wdir", "/"}}, *lists[] = {NULL, info}, preput = {"from", "parent"}, empty = {NULL, "v"};
    int errors[] = {-7, -7, -7};
    GIVES(PMI_ERR_INVALID_ARG, PMI_Spawn_multiple(0, commands, argvs, processes, NULL, NULL, 0, NULL, errors));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Spawn_multiple(1, none, NULL, processes, NULL, NULL, 0, NULL, errors));
    GIVES(PMI_ERR_INVALID_ARG, PMI_Spawn_multiple(1, commands, NULL, &zero, NULL, NULL, 0, NULL, errors));
    GIVES(PMI_ERR_INVALID_KEYVALP, PMI_Spawn_multiple(1, commands, NULL, processes, NULL, NULL, 1, &empty, errors));
    if (alone) {
        GIVES(PMI_FAIL, PMI_Spawn_multiple(1, commands, NULL, processes, NULL, NULL, 0, NULL, errors));
    } else if (rank == 0) {
        GIVES(PMI_SUCCESS, PMI_Spawn_multiple(2, commands, argvs, processes, infos, lists, 1, &preput, errors));
        CHECK(errors[0] == 0 && errors[1] == 0 && errors[2] == -7);
    }
}

static void child(void)
{
    GIVES(PMI_SUCCESS, PMI_KVS_Get(space, "from", text, sizeof text));
    CHECK(spawned == 1 && size == 3 && !strcmp(text, "parent"));
    GIVES(PMI_SUCCESS, PMI_Get_appnum(&number));
    CHECK(number == (rank > 0));
    GIVES(PMI_SUCCESS, PMI_Finalize());
    SAY("child %d of %d", rank, size);
}

static void count_messages(pthread_t thread)
{
    char key[32];
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "%d-%d", rank, i);
        GIVES(PMI_SUCCESS, PMI_KVS_Put(space, key, "value"));
    }
    GIVES(PMI_SUCCESS, PMI_Barrier());
    long before = said;
    for (int i = 0; i < 20 * size; i++) {
        snprintf(key, sizeof key, "%d-%d", i % size, i / size);
        GIVES(PMI_SUCCESS, PMI_KVS_Get(space, key, text, sizeof text));
        CHECK(!strcmp(text, "value"));
    }
    CHECK(!messages(before, 20 * size));
    GIVES(PMI_ERR_INVALID_KEY, PMI_KVS_Get(space, "none", text, sizeof text));
    CHECK(messages(before, 1));
    GIVES(PMI_SUCCESS, PMI_Finalize());
    CHECK(pthread_join(thread, NULL) == 0);
    SAY("read rank %d", rank);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    pthread_t thread = strcmp(mode, "messages") ? pthread_self() : between();
    memset(key_64, 'k', 64);
    memset(key_65, 'k', 65);
    memset(value_1024, 'v', 1024);
    memset(value_1025, 'v', 1025);
    if (!*mode) test_outside(0);
    GIVES(PMI_SUCCESS, PMI_Init(&spawned));
    GIVES(PMI_SUCCESS, PMI_Get_size(&size));
    GIVES(PMI_SUCCESS, PMI_Get_rank(&rank));
    GIVES(PMI_SUCCESS, PMI_KVS_Get_my_name(space, sizeof space));
    if (!strcmp(mode, "messages")) {
        count_messages(thread);
        return 0;
    }
    if (!strcmp(mode, "child")) {
        child();
        return 0;
    }
    if (!strcmp(mode, "abort")) {
        if (rank == size - 1) PMI_Abort(37, argc > 2 ? argv[2] : "the last rank; stops");
        PMI_Barrier();
        SAY("rank %d survived", rank);
        return 0;
    }
    CHECK(spawned == 0);
    test_job(!strcmp(mode, "alone"));
    test_space();
    test_groups();
    test_names();
    test_options();
    test_spawn(argv[0], !strcmp(mode, "alone"));
    GIVES(PMI_SUCCESS, PMI_Finalize());
    test_outside(1);
    GIVES(PMI_FAIL, PMI_Init(&number));
    SAY("codes of rank %d of %d are right", rank, size);
    return 0;
}
