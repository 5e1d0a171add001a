/* Several threads of one process at the same time.
 *
 *   pmi2_threads calls     every thread puts and gets on its own, while one thread fences
 *   pmi2_threads waits     two threads wait for node attributes that the main thread puts afterwards, backwards
 *   pmi2_threads one       one thread waits for a node attribute, and the main thread uses every other function
 *   pmi2_threads end       PMI2_Finalize while a thread waits, whose call then fails
 */
#include "pmi2_check.h"
#include <pthread.h>

#define THREADS 8
#define ROUNDS 100

static void *caller(void *arg)
{
    int me = *(int *)arg;
    char key[64], value[64];
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof key, "key-%d-%d-%d", rank, me, i);
        snprintf(value, sizeof value, "value of %d in %d, round %d", me, rank, i);
        OK(PMI2_KVS_Put(key, value));
        OK(PMI2_Info_PutNodeAttr(key, value));
    }
    return NULL;
}

static void *getter(void *arg)
{
    int me = *(int *)arg, found;
    char key[64], value[64], got[64];
    for (int i = 0; i < ROUNDS; i++) {
        int of = (rank + i) % size;
        snprintf(key, sizeof key, "key-%d-%d-%d", of, me, i);
        snprintf(value, sizeof value, "value of %d in %d, round %d", me, of, i);
        check_value(i % 2 ? NULL : jobid, PMI2_ID_NULL, key, value);
        snprintf(key, sizeof key, "key-%d-%d-%d", rank, me, i);
        snprintf(value, sizeof value, "value of %d in %d, round %d", me, rank, i);
        OK(PMI2_Info_GetNodeAttr(key, got, sizeof got, &found, i % 3 == 0));
        CHECK(found && !strcmp(got, value));
    }
    return NULL;
}

static void *fencer(void *unused)
{
    for (int i = 0; i < 20; i++)
        OK(PMI2_KVS_Fence());
    return unused;
}

static void all(void *(*body)(void *), pthread_t fences)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(!pthread_create(&threads[i], NULL, body, &numbers[i]));
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(!pthread_join(fences, NULL));
}

static void test_calls(void)
{
    pthread_t fences;
    CHECK(!pthread_create(&fences, NULL, fencer, NULL));
    all(caller, fences);
    /* Behind every put of every thread. */
    OK(PMI2_KVS_Fence());
    CHECK(!pthread_create(&fences, NULL, fencer, NULL));
    all(getter, fences);
}

static pthread_barrier_t ready;

static void *waiter(void *name)
{
    char value[64], key[64];
    int found = 0;
    snprintf(key, sizeof key, "%s-%d", (char *)name, rank);
    pthread_barrier_wait(&ready);
    OK(PMI2_Info_GetNodeAttr(key, value, sizeof value, &found, 1));
    CHECK(found && !strcmp(value, (char *)name));
    return NULL;
}

/* Waits that end in another order than they began. */
static void test_waits(int waits)
{
    static char *names[] = {"first", "second"};
    pthread_t threads[2];
    char key[64], value[64];
    int found = -1, at, ranks;
    CHECK(!pthread_barrier_init(&ready, NULL, waits + 1));
    for (int i = 0; i < waits; i++)
        CHECK(!pthread_create(&threads[i], NULL, waiter, names[i]));
    pthread_barrier_wait(&ready);
    if (waits > 1) {
        OK(PMI2_Info_GetNodeAttr("nobody-puts-this", value, sizeof value, &found, 0));
        CHECK(!found);
    }
    snprintf(key, sizeof key, "of-%d", rank);
    OK(PMI2_KVS_Put(key, "x"));
    OK(PMI2_KVS_Fence());
    check_value(NULL, PMI2_ID_NULL, key, "x");
    OK(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found));
    CHECK(found);
    if (!getenv("NO_RING"))
        OK(PMIX_Ring("x", &at, &ranks, key, value, sizeof value));
    for (int i = waits; i-- > 0;) {
        snprintf(key, sizeof key, "%s-%d", names[i], rank);
        OK(PMI2_Info_PutNodeAttr(key, names[i]));
        CHECK(!pthread_join(threads[i], NULL));
    }
}

static void *abandoned(void *unused)
{
    char value[64];
    int found = -1;
    pthread_barrier_wait(&ready);
    int rc = PMI2_Info_GetNodeAttr("nobody-puts-this", value, sizeof value, &found, 1);
    /* Which of the two depends on who comes first. */
    CHECK((rc == PMI2_FAIL || rc == PMI2_ERR_INIT) && found == -1);
    return unused;
}

static void test_end(void)
{
    pthread_t thread;
    CHECK(!pthread_barrier_init(&ready, NULL, 2));
    CHECK(!pthread_create(&thread, NULL, abandoned, NULL));
    pthread_barrier_wait(&ready);
    OK(PMI2_Finalize());
    CHECK(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    start();
    if (!strcmp(what, "calls"))
        test_calls();
    else if (!strcmp(what, "waits"))
        test_waits(2);
    else if (!strcmp(what, "one"))
        test_waits(1);
    else if (!strcmp(what, "end"))
        test_end();
    else
        CHECK(!"a known test");
    if (strcmp(what, "end"))
        OK(PMI2_Finalize());
    SAY("threads of rank %d of %d done", rank, size);
    return 0;
}
