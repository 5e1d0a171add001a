/* Spawns itself as the first argument selects. Children print what they received.
 *
 *   world N          all ranks together spawn N children
 *   self N           each rank spawns N children, all at the same time
 *   again N          spawns one child after the other, N times
 *   nested DEPTH     a child of a child of a child...
 *   args             a child with awkward arguments
 *   multiple DIR HOST  two programs with info, then the unknown key and the path
 *   keys WHO N K=V... all ranks together (world) or each (self) spawn N children with info; an error, and the job continues
 *   missing          a missing program: an error, and the job continues
 *   partly           two programs, the second is missing
 *   outlives PIPE    the child continues after the parent has exited
 *   fails CODE       the child exits with that code after MPI_Finalize
 *   dies HOW PIPE    the child ends by exit, abort or signal while its parents are in no call of MPI
 *   parts            the child dies after MPI_Comm_disconnect; the parents continue when the input of rank 0 ends
 *   abandons PIPE    the parent dies after MPI_Comm_disconnect, and the child continues
 */
#include "mpi_check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char *self;

/* Ranks of both sides sum the ranks of the other side and print their number. */
static void exchange(MPI_Comm other)
{
    int rank = rank_in(other), sum = -1, remote, expected;
    OK(MPI_Comm_remote_size(other, &remote));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, other));
    expected = remote * (remote - 1) / 2;
    CHECK(sum == expected);
}

/* Both sides as one communicator. */
static void merge(MPI_Comm other, int high)
{
    MPI_Comm all;
    int one = 1, sum = 0, remote;
    OK(MPI_Comm_remote_size(other, &remote));
    OK(MPI_Intercomm_merge(other, high, &all));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all));
    CHECK(sum == remote + size_of(other) && sum == size_of(all));
    OK(MPI_Comm_free(&all));
}

static void spawn(MPI_Comm comm, int count, char **argv, MPI_Comm *children)
{
    int codes[64];
    CHECK(count <= 64);
    memset(codes, -1, sizeof codes);
    OK(MPI_Comm_spawn(self, argv, count, MPI_INFO_NULL, 0, comm, children, codes));
    for (int i = 0; i < count; i++)
        CHECK(codes[i] == MPI_SUCCESS);
    int remote;
    OK(MPI_Comm_remote_size(*children, &remote));
    CHECK(remote == count);
}

static void with(MPI_Comm comm, int count, char **argv)
{
    MPI_Comm children;
    spawn(comm, count, argv, &children);
    exchange(children);
    merge(children, 0);
    OK(MPI_Comm_disconnect(&children));
}

static void say_arguments(int argc, char **argv)
{
    char text[2048] = "", dir[1024];
    const char *seen = getenv("HYDRANT_TESTS_ENV");
    for (int i = 2; i < argc; i++) {
        strcat(text, "[");
        strcat(text, argv[i]);
        strcat(text, "]");
    }
    CHECK(getcwd(dir, sizeof dir) != NULL);
    SAY("child %d of %d program %d in %s with %d:%s env=%s", rank_in(MPI_COMM_WORLD), size_of(MPI_COMM_WORLD),
        attribute(MPI_APPNUM), dir, argc - 2, text, seen ? seen : "-");
}

static void die(const char *how)
{
    if (!strcmp(how, "exit"))
        _exit(3);
    if (!strcmp(how, "abort"))
        MPI_Abort(MPI_COMM_WORLD, 7);
    abort();
}

/* Disconnects at once: Open MPI's ranks abort when a process to which they have sent anything dies, also after that. */
static void part(MPI_Comm other)
{
    OK(MPI_Comm_disconnect(&other));
}

static void await_end(int fd)
{
    char byte;
    CHECK(read(fd, &byte, 1) == 0);
}

static void child(int argc, char **argv, MPI_Comm parent)
{
    const char *what = argc > 1 ? argv[1] : "plain";
    if (!strcmp(what, "dies")) {
        int parents = open(argv[3], O_RDONLY);
        CHECK(parents >= 0);
        exchange(parent);
        await_end(parents);
        die(argv[2]);
    }
    if (!strcmp(what, "parts")) {
        part(parent);
        die("signal");
    }
    int pipe = -1;
    if (!strcmp(what, "outlives") || !strcmp(what, "abandons"))
        CHECK((pipe = open(argv[2], O_RDONLY)) >= 0);
    if (!strcmp(what, "abandons")) {
        part(parent);
        await_end(pipe);
        SAY("child outlived its parent");
        OK(MPI_Finalize());
        exit(0);
    }
    if (!strcmp(what, "tell"))
        say_arguments(argc, argv);
    else
        SAY("child %d of %d", rank_in(MPI_COMM_WORLD), size_of(MPI_COMM_WORLD));
    exchange(parent);
    merge(parent, 1);
    if (!strcmp(what, "nested") && atoi(argv[2]) > 0) {
        char depth[16];
        snprintf(depth, sizeof depth, "%d", atoi(argv[2]) - 1);
        with(MPI_COMM_SELF, 1, (char *[]){"nested", depth, NULL});
        SAY("depth %s below", depth);
    }
    OK(MPI_Comm_disconnect(&parent));
    if (!strcmp(what, "outlives")) {
        await_end(pipe);
        SAY("child outlived its parent");
    }
    OK(MPI_Finalize());
    exit(!strcmp(what, "fails") ? atoi(argv[2]) : 0);
}

static void multiple(const char *dir, const char *host)
{
    char *slash = strrchr(self, '/'), *name = slash + 1, *path = strndup(self, slash - self);
    char *first[] = {"tell", "a b", "x=y", "\"q\"", NULL}, *second[] = {"tell", NULL}, **argvs[] = {first, second};
    char *commands[] = {self, name};
    int counts[] = {2, 1}, codes[3] = {-1, -1, -1}, remote;
    MPI_Info infos[2];
    MPI_Comm children;
    OK(MPI_Info_create(&infos[0]));
    OK(MPI_Info_set(infos[0], "wdir", dir));
    OK(MPI_Info_set(infos[0], "host", host));
    OK(MPI_Info_set(infos[0], "env", "HYDRANT_TESTS_ENV=from-info"));
    OK(MPI_Info_create(&infos[1]));
    OK(MPI_Info_set(infos[1], "path", path));
    OK(MPI_Info_set(infos[1], "no-such-key", "whatever it says"));
    OK(MPI_Comm_spawn_multiple(2, commands, argvs, counts, infos, 0, MPI_COMM_WORLD, &children, codes));
    for (int i = 0; i < 3; i++)
        CHECK(codes[i] == MPI_SUCCESS);
    OK(MPI_Comm_remote_size(children, &remote));
    CHECK(remote == 3);
    exchange(children);
    merge(children, 0);
    OK(MPI_Comm_disconnect(&children));
    OK(MPI_Info_free(&infos[0]));
    OK(MPI_Info_free(&infos[1]));
    free(path);
}

static void say_refusal(int rc, int *codes, int count)
{
    int class = MPI_SUCCESS;
    char text[256] = "";
    CHECK(rc != MPI_SUCCESS);
    OK(MPI_Error_class(rc, &class));
    /* The codes of Open MPI 5 have no class, which is an error of MPI_COMM_WORLD. */
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int i = 0; i < count; i++) {
        int code = MPI_SUCCESS;
        if (codes[i] != MPI_SUCCESS && MPI_Error_class(codes[i], &code) != MPI_SUCCESS)
            code = -1;
        strcat(text, codes[i] == MPI_SUCCESS ? " ok" : code == MPI_ERR_SPAWN ? " spawn" : " other");
    }
    SAY("refused: class %s codes%s", class == MPI_ERR_SPAWN ? "spawn" : "other", text);
}

static void keys(const char *who, int count, char **pairs)
{
    MPI_Comm comm = !strcmp(who, "world") ? MPI_COMM_WORLD : MPI_COMM_SELF, children;
    MPI_Info info;
    int codes[64];
    CHECK(count <= 64);
    memset(codes, -1, sizeof codes);
    OK(MPI_Info_create(&info));
    for (; *pairs != NULL; pairs++) {
        char *equals = strchr(*pairs, '='), *key = strndup(*pairs, equals - *pairs);
        OK(MPI_Info_set(info, key, equals + 1));
        free(key);
    }
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    int rc = MPI_Comm_spawn(self, MPI_ARGV_NULL, count, info, 0, comm, &children, codes);
    OK(MPI_Info_free(&info));
    if (rc != MPI_SUCCESS) {
        say_refusal(rc, codes, count);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        return;
    }
    exchange(children);
    merge(children, 0);
    OK(MPI_Comm_disconnect(&children));
}

static void missing(void)
{
    int codes[2] = {-1, -1};
    MPI_Comm children = MPI_COMM_NULL;
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    int rc = MPI_Comm_spawn("/no/such/program", MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_SELF, &children, codes);
    say_refusal(rc, codes, 2);
    /* The job still works. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    with(MPI_COMM_WORLD, 1, MPI_ARGV_NULL);
}

static void partly(void)
{
    char *commands[] = {self, "/no/such/program"};
    int counts[] = {1, 1}, codes[2] = {-1, -1};
    MPI_Info infos[2] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm children = MPI_COMM_NULL;
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    int rc = MPI_Comm_spawn_multiple(2, commands, MPI_ARGVS_NULL, counts, infos, 0, MPI_COMM_SELF, &children, codes);
    say_refusal(rc, codes, 2);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Only the parent has the write end of a pipe, so the child detects when the parent has exited. */
static void outlives(char *how, char *pipe)
{
    MPI_Comm children;
    CHECK(mkfifo(pipe, 0600) == 0 && open(pipe, O_RDWR | O_CLOEXEC) >= 0);
    spawn(MPI_COMM_WORLD, 1, (char *[]){how, pipe, NULL}, &children);
    if (!strcmp(how, "abandons")) {
        part(children);
        die("signal");
    }
    exchange(children);
    merge(children, 0);
    OK(MPI_Comm_disconnect(&children));
}

/* The child dies when all parents have closed the pipe, after their last call of MPI: Open MPI's progress may see the
 * connection of the child closed, and abort, before the launcher hears of the exit. */
static void dies(char *how, char *pipe)
{
    MPI_Comm children;
    if (rank_in(MPI_COMM_WORLD) == 0)
        CHECK(mkfifo(pipe, 0600) == 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int alive = open(pipe, O_RDWR | O_CLOEXEC);
    CHECK(alive >= 0);
    spawn(MPI_COMM_WORLD, 1, (char *[]){"dies", how, pipe, NULL}, &children);
    exchange(children);
    close(alive);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    OK(MPI_Init(&argc, &argv));
    self = argv[0];
    OK(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL)
        child(argc, argv, parent);
    CHECK(argc > 1);
    int rank = rank_in(MPI_COMM_WORLD), number = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(argv[1], "world")) {
        with(MPI_COMM_WORLD, number, MPI_ARGV_NULL);
    } else if (!strcmp(argv[1], "self")) {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        with(MPI_COMM_SELF, number, MPI_ARGV_NULL);
    } else if (!strcmp(argv[1], "again")) {
        for (int i = 0; i < number; i++)
            with(MPI_COMM_WORLD, 1, MPI_ARGV_NULL);
    } else if (!strcmp(argv[1], "nested")) {
        with(MPI_COMM_WORLD, 1, (char *[]){"nested", argv[2], NULL});
    } else if (!strcmp(argv[1], "args")) {
        with(MPI_COMM_WORLD, 1, (char *[]){"tell", "", "a  b ", ";x;;y", "", "k=v", "100%", "\\n", "'\"`$", "é", "", NULL});
    } else if (!strcmp(argv[1], "multiple")) {
        CHECK(argc == 4);
        multiple(argv[2], argv[3]);
    } else if (!strcmp(argv[1], "keys")) {
        CHECK(argc > 4);
        keys(argv[2], atoi(argv[3]), argv + 4);
    } else if (!strcmp(argv[1], "missing")) {
        missing();
    } else if (!strcmp(argv[1], "partly")) {
        partly();
    } else if (!strcmp(argv[1], "outlives") || !strcmp(argv[1], "abandons")) {
        outlives(argv[1], argv[2]);
    } else if (!strcmp(argv[1], "parts")) {
        MPI_Comm children;
        spawn(MPI_COMM_WORLD, 1, (char *[]){"parts", NULL}, &children);
        part(children);
        if (rank == 0)
            await_end(0);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    } else if (!strcmp(argv[1], "dies")) {
        dies(argv[2], argv[3]);
    } else if (!strcmp(argv[1], "fails")) {
        with(MPI_COMM_WORLD, 1, (char *[]){"fails", argv[2], NULL});
    } else {
        CHECK(!"a known way");
    }
    SAY("parent %d of %d done, universe %d", rank, size_of(MPI_COMM_WORLD), attribute(MPI_UNIVERSE_SIZE));
    OK(MPI_Finalize());
    return 0;
}
