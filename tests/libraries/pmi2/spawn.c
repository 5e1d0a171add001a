/* Spawning under process managers that can do less than hydrant: each test asks for one thing more.
 *
 *   one      a program of two processes, with arguments and a preput
 *   two      two programs
 *   info     with a folder to start in
 *   odd      with an empty argument, and with semicolons and nothing as values
 *   soft     two processes of four, by the info key soft
 *   long     with an info key and a value that are longer than those of the key-value space may be
 *   short    with a buffer that is too short for the new job's id
 *   missing  a program that is not there
 *
 * What is spawned checks what it got, and exchanges values with its own job.
 */
#include "../clients/pmi2_check.h"

#define PAIR(k, v) {.key = (char *)(k), .value = (char *)(v)}

static char *self;

#define LONG "HYDRANT_TESTS_LONG"

static char long_key[200], long_value[4000];

static void fill(void)
{
    memset(long_key, 'k', sizeof long_key - 1);
    memset(long_value, 'v', sizeof long_value - 1);
    memcpy(long_value, LONG "=", strlen(LONG "="));
}

static void child(int argc, char **argv)
{
    char text[256] = "", dir[512], key[32], value[64];
    int odd = !strcmp(argv[1], "odd");
    for (int i = 2; i < argc; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "[%s]", argv[i]);
    CHECK(spawned == 1 && getcwd(dir, sizeof dir) != NULL);
    if (!strcmp(argv[1], "long")) {
        const char *env = getenv(LONG);
        CHECK(env && !strcmp(env, strchr(long_value, '=') + 1));
    }
    check_value(NULL, PMI2_ID_NULL, "first", odd ? "one;two" : "one two");
    if (odd)
        check_value(jobid, PMI2_ID_NULL, "second", "");
    snprintf(key, sizeof key, "child-%d", rank);
    OK(PMI2_KVS_Put(key, key));
    OK(PMI2_KVS_Fence());
    for (int i = 0; i < size; i++) {
        snprintf(value, sizeof value, "child-%d", i);
        check_value(jobid, i, value, value);
    }
    SAY("child %d of %d in %s with %s", rank, size, !strcmp(dir, "/") ? "/" : "here", text);
}

int main(int argc, char **argv)
{
    self = argv[0];
    fill();
    start();
    if (argc > 2) {
        child(argc, argv);
        OK(PMI2_Finalize());
        return 0;
    }
    const char *what = argc > 1 ? argv[1] : "";
    int odd = !strcmp(what, "odd"), two = !strcmp(what, "two");
    const char *commands[] = {strcmp(what, "missing") ? self : "/no/such/program", self};
    const char *first[] = {what, odd ? "" : "plain", "two words", NULL}, *second[] = {what, "second", NULL};
    const char **argvs[] = {first, second};
    int argcs[] = {3, 2};
    const MPID_Info wdir[] = {PAIR("wdir", "/")}, fewer[] = {PAIR("soft", "1:2,9")};
    const MPID_Info longs[] = {PAIR(long_key, long_value), PAIR("env", long_value)};
    int is_info = !strcmp(what, "info"), is_soft = !strcmp(what, "soft"), is_long = !strcmp(what, "long");
    const MPID_Info *info[] = {is_info ? wdir : is_soft ? fewer : is_long ? longs : NULL, NULL};
    const int procs[] = {is_soft ? 4 : 2, 1}, infos[] = {is_long ? 2 : is_info || is_soft, 0};
    const MPID_Info one = PAIR("first", odd ? "one;two" : "one two"), nothing = PAIR("second", "");
    const MPID_Info *preputs[] = {&one, &nothing};
    char job[256] = "";
    /* Slurm's library writes a code for each process. */
    int errors[4] = {-1, -1, -1, -1};
    CHECK(spawned == 0);
    if (rank == 0) {
        int rc = PMI2_Job_Spawn(1 + two, commands, argcs, argvs, procs, infos, info, 1 + odd, preputs, job,
                                strcmp(what, "short") ? (int)sizeof job : 5, errors);
        SAY("spawn %s: %d, %s, first code %d", what, rc, *job && strcmp(job, jobid) ? "a job" : "no job", errors[0]);
    }
    OK(PMI2_KVS_Fence());
    char nobody[8];
    int length;
    PMI2_KVS_Get(NULL, 0, "-NONEXIST-KEY", nobody, sizeof nobody, &length);
    OK(PMI2_Finalize());
    return 0;
}
