/* Functions of pmi2.h across jobs: spawn, connect, abort.
 *
 *   spawn            several programs with arguments, info and preputs, then their spaces from outside
 *   many             every rank spawns at the same time
 *   missing          missing programs
 *   connect PIPE     connect and disconnect, with invalid arguments
 *   part             spawn a process that disconnects and dies; continue when the input ends
 *   chain PIPE PIPE  connect to two jobs, which are then connected to each other
 *   first            connect to the job of another run that shares the name service, which is
 *   second           this one; it ends when the input of its last rank does
 *   one              the last rank aborts itself only; the others continue
 *   world            rank 0 aborts the job
 *
 * A spawned process prints what it received and puts it into the space of its job.
 */
#include "pmi2_check.h"
#include <fcntl.h>
#include <sys/stat.h>

static char *self;

static void child(int argc, char **argv)
{
    char value[PMI2_MAX_VALLEN] = "", key[32], dir[512], text[1024] = "";
    for (int i = 1; i < argc; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "[%s]", argv[i]);
    CHECK(getcwd(dir, sizeof dir) != NULL);
    check_value(NULL, PMI2_ID_NULL, "preput one", "first;value");
    check_value(jobid, PMI2_ID_NULL, "preput two", "");
    snprintf(key, sizeof key, "child-%d", rank);
    snprintf(value, sizeof value, "%d of %d", rank, size);
    OK(PMI2_KVS_Put(key, value));
    OK(PMI2_KVS_Fence());
    const char *env = getenv("HYDRANT_TESTS_ENV");
    SAY("child %d of %d program %d in %s env=%s with %d:%s", rank, size, appnum, dir, env ? env : "-", argc - 1, text);
}

#define PAIR(k, v) {.key = (char *)(k), .value = (char *)(v)}

static const MPID_Info preput_one = PAIR("preput one", "first;value"), preput_two = PAIR("preput two", "");
static const MPID_Info *preputs[] = {&preput_one, &preput_two};

static int spawn(int count, const char *commands[], const char **argvs[], const int procs[], const int infos[],
                 const MPID_Info *info[], char *job, int room, int errors[])
{
    int argcs[8] = {0};
    for (int i = 0; i < count; i++)
        while (argvs && argvs[i] && argvs[i][argcs[i]])
            argcs[i]++;
    return PMI2_Job_Spawn(count, commands, argcs, argvs, procs, infos, info, 2, preputs, job, room, errors);
}

static void spawn_two(void)
{
    const char *commands[] = {self, strrchr(self, '/') + 1}, **argvs[2];
    const char *first[] = {"", "two words", "semi;colon", "", NULL}, *second[] = {NULL};
    char path[512], job[256] = "";
    const MPID_Info of_first[] = {PAIR("wdir", "/"), PAIR("env", "HYDRANT_TESTS_ENV=of;info"), PAIR("no-such-key", "x")};
    const MPID_Info of_second[] = {PAIR("path", path)};
    const MPID_Info *info[] = {of_first, of_second};
    int procs[] = {2, 1}, infos[] = {3, 1}, errors[3] = {-1, -1, -1};
    snprintf(path, sizeof path, "%.*s", (int)(strrchr(self, '/') - self), self);
    argvs[0] = first, argvs[1] = second;
    OK(spawn(2, commands, argvs, procs, infos, info, job, sizeof job, errors));
    CHECK(*job && strcmp(job, jobid) && errors[0] == 0 && errors[1] == 0);
    SAY("spawned");
}

static void spawn_many(void)
{
    const char *commands[] = {self}, *none[] = {NULL}, **argvs[] = {none};
    int procs[] = {2}, infos[] = {0}, errors[2] = {-1, -1};
    const MPID_Info *info[] = {NULL};
    char job[256] = "", key[32], other[256];
    int length;
    OK(PMI2_KVS_Fence());
    OK(spawn(1, commands, argvs, procs, infos, info, job, sizeof job, errors));
    CHECK(*job && strcmp(job, jobid) && errors[0] == 0);
    snprintf(key, sizeof key, "spawned-by-%d", rank);
    OK(PMI2_KVS_Put(key, job));
    OK(PMI2_KVS_Fence());
    for (int i = 0; i < size; i++) {
        snprintf(key, sizeof key, "spawned-by-%d", i);
        OK(PMI2_KVS_Get(NULL, i, key, other, sizeof other, &length));
        CHECK((strcmp(other, job) == 0) == (i == rank));
    }
    SAY("rank %d spawned", rank);
}

/* The library has no codes for a failed spawn, but the call must fail. */
static void spawn_missing(void)
{
    const char *commands[] = {self, "/no/such/program"}, *none[] = {NULL}, **argvs[] = {none, none};
    int procs[] = {1, 1}, infos[] = {0, 0}, errors[2] = {0, 0};
    const MPID_Info *info[] = {NULL, NULL};
    char job[256] = "";
    FAILS(spawn(2, commands, argvs, procs, infos, info, job, sizeof job, errors));
    FAILS(spawn(1, commands + 1, argvs, procs, infos, info, job, sizeof job, errors));
    FAILS(spawn(1, (const char *[]){""}, argvs, procs, infos, info, job, sizeof job, errors));
    procs[0] = 0;
    FAILS(spawn(1, commands, argvs, procs, infos, info, job, sizeof job, errors));
    OK(PMI2_KVS_Fence());
    SAY("rank %d goes on", rank);
}

static void connect(const char *pipe)
{
    const char *commands[] = {self}, *args[] = {"stay", pipe, NULL}, **argvs[] = {args};
    int procs[] = {1}, infos[] = {0}, errors[1] = {-1}, writer;
    const MPID_Info *info[] = {NULL};
    char job[256] = "";
    PMI2_Connect_comm_t comm;
    memset(&comm, 0, sizeof comm);
    CHECK(mkfifo(pipe, 0600) == 0);
    FAILS(PMI2_Job_Connect("no-such-job", &comm));
    FAILS(PMI2_Job_Disconnect("no-such-job"));
    FAILS(PMI2_Job_Disconnect(jobid));
    OK(spawn(1, commands, argvs, procs, infos, info, job, sizeof job, errors));
    /* The open returns when the child has opened its end. */
    CHECK((writer = open(pipe, O_WRONLY | O_CLOEXEC)) >= 0);
    FAILS(has_key(job, "preput one") ? PMI2_SUCCESS : PMI2_FAIL);
    OK(PMI2_Job_Connect(job, &comm));
    check_value(job, PMI2_ID_NULL, "preput one", "first;value");
    /* Connected jobs may connect again. */
    OK(PMI2_Job_Connect(job, &comm));
    CHECK(!has_key(NULL, "preput one"));
    OK(PMI2_Job_Disconnect(job));
    FAILS(has_key(job, "preput one") ? PMI2_SUCCESS : PMI2_FAIL);
    FAILS(PMI2_Job_Disconnect(job));
    OK(PMI2_Job_Connect(job, &comm));
    check_value(job, PMI2_ID_NULL, "child-0", "0 of 1");
    CHECK(close(writer) == 0);
    SAY("connected");
}

/* The child of `connect` runs until its spawner closes the pipe. */
static void stay(const char *pipe)
{
    char byte;
    int fd = open(pipe, O_RDONLY);
    CHECK(fd >= 0 && read(fd, &byte, 1) == 0);
}

static int open_pipe(const char *pipe, int flags)
{
    int fd = open(pipe, flags | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

/* Spawns a job of one rank, which gets these arguments. */
static void spawn_one(const char *args[], char *job, int room)
{
    const char *commands[] = {self}, **argvs[] = {args};
    int procs[] = {1}, infos[] = {0}, errors[1] = {-1};
    const MPID_Info *info[] = {NULL};
    OK(spawn(1, commands, argvs, procs, infos, info, job, room, errors));
}

static void part(void)
{
    char job[256] = "", byte;
    spawn_one((const char *[]){"parted", jobid, NULL}, job, sizeof job);
    CHECK(read(0, &byte, 1) == 0);
    FAILS(PMI2_Job_Disconnect(job));
    SAY("the parent goes on");
}

/* The child of `part`. */
static void parted(const char *parent)
{
    OK(PMI2_Job_Disconnect(parent));
    FAILS(PMI2_Job_Disconnect(parent));
    abort();
}

static void chain(const char *first_pipe, const char *second_pipe)
{
    char first[256] = "", second[256] = "";
    const char *stays[] = {"stay", first_pipe, NULL}, *reads[] = {"read", first_pipe, second_pipe, first, NULL};
    PMI2_Connect_comm_t comm;
    CHECK(mkfifo(first_pipe, 0600) == 0 && mkfifo(second_pipe, 0600) == 0);
    spawn_one(stays, first, sizeof first);
    int first_writer = open_pipe(first_pipe, O_WRONLY);
    OK(PMI2_Job_Connect(first, &comm));
    spawn_one(reads, second, sizeof second);
    int second_writer = open_pipe(second_pipe, O_WRONLY);
    OK(PMI2_Job_Connect(second, &comm));
    CHECK(close(second_writer) == 0 && close(first_writer) == 0);
    SAY("chained");
}

/* The second child of `chain`. Both pipes are open before its spawner connects, and it keeps the first child alive. */
static void read_other(const char *first_pipe, const char *second_pipe, const char *first)
{
    char byte;
    int keeps = open_pipe(first_pipe, O_WRONLY), waits = open_pipe(second_pipe, O_RDONLY);
    CHECK(read(waits, &byte, 1) == 0);
    check_value(first, PMI2_ID_NULL, "preput one", "first;value");
    check_value(first, PMI2_ID_NULL, "child-0", "0 of 1");
    CHECK(close(keeps) == 0);
    SAY("read what is put in the other job");
}

/* Waits until a job has published a name. `job` gets its job id. */
static void await(const char *name, char *job, int room)
{
    OK(PMI2_Nameserv_lookup(name, NULL, job, room));
}

static void tell(const char *name)
{
    OK(PMI2_Nameserv_publish(name, NULL, jobid));
}

/* Every rank puts a pair. Returns whether this one, the last rank, also put `across` and talks to the other job. */
static int puts_before_it_talks(const char *job, const char *across)
{
    char key[32];
    snprintf(key, sizeof key, "rank %d", rank);
    OK(PMI2_KVS_Put(key, job));
    if (rank == size - 1)
        OK(PMI2_KVS_Put("across", across));
    OK(PMI2_KVS_Fence());
    return rank == size - 1;
}

static void first(void)
{
    char other[256];
    PMI2_Connect_comm_t comm;
    memset(&comm, 1, sizeof comm);
    if (!puts_before_it_talks("first", "first"))
        return;
    await("second", other, sizeof other);
    FAILS(has_key(other, "across") ? PMI2_SUCCESS : PMI2_FAIL);
    OK(PMI2_Job_Connect(other, &comm));
    check_value(other, PMI2_ID_NULL, "rank 0", "second");
    CHECK(!comm.read && !comm.write && !comm.ctx && comm.isMaster == -1);
    check_value(other, PMI2_ID_NULL, "across", "second;value");
    check_value(other, 0, "across", "second;value");
    CHECK(!has_key(other, "none"));
    tell("connected");
    await("parted", other, sizeof other);
    FAILS(has_key(other, "across") ? PMI2_SUCCESS : PMI2_FAIL);
    FAILS(PMI2_Job_Disconnect(other));
    OK(PMI2_Job_Connect(other, &comm));
    check_value(other, PMI2_ID_NULL, "across", "second;value");
    SAY("first");
}

static void second(void)
{
    char other[256], byte;
    if (!puts_before_it_talks("second", "second;value"))
        return;
    tell("second");
    await("connected", other, sizeof other);
    check_value(other, PMI2_ID_NULL, "rank 0", "first");
    check_value(other, PMI2_ID_NULL, "across", "first");
    OK(PMI2_Job_Disconnect(other));
    FAILS(has_key(other, "across") ? PMI2_SUCCESS : PMI2_FAIL);
    tell("parted");
    /* The names last until the other run has seen them. */
    CHECK(read(0, &byte, 1) == 0);
    FAILS(has_key(other, "across") ? PMI2_SUCCESS : PMI2_FAIL);
    FAILS(PMI2_Job_Disconnect(other));
    SAY("second");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    self = argv[0];
    start();
    if (getenv("PMI_SPAWNED")) {
        child(argc, argv);
        if (!strcmp(what, "stay"))
            stay(argv[2]);
        else if (!strcmp(what, "parted"))
            parted(argv[2]);
        else if (!strcmp(what, "read"))
            read_other(argv[2], argv[3], argv[4]);
    } else if (!strcmp(what, "spawn")) {
        spawn_two();
    } else if (!strcmp(what, "many")) {
        spawn_many();
    } else if (!strcmp(what, "missing")) {
        spawn_missing();
    } else if (!strcmp(what, "connect")) {
        connect(argv[2]);
    } else if (!strcmp(what, "part")) {
        part();
    } else if (!strcmp(what, "chain")) {
        chain(argv[2], argv[3]);
    } else if (!strcmp(what, "first")) {
        first();
    } else if (!strcmp(what, "second")) {
        second();
    } else if (!strcmp(what, "one")) {
        if (rank == size - 1) {
            PMI2_Abort(0, "this rank; alone");
            exit(7);
        }
        for (int i = 0; i < 3; i++)
            OK(PMI2_KVS_Fence());
        SAY("rank %d survived", rank);
    } else if (!strcmp(what, "world")) {
        if (rank == 0)
            PMI2_Abort(1, argc > 2 ? argv[2] : "the whole; world");
        OK(PMI2_KVS_Fence());
        SAY("rank %d survived", rank);
    } else {
        CHECK(!"a known test");
    }
    OK(PMI2_Finalize());
    return 0;
}
