/* Process sets that hold ranks of a job of two ranks and of the job of three ranks that it spawns.
 *
 *   hydrant run --mpi-psets -n 2 ./mpi_psets_jobs
 *
 * Built with libhydrant_mpi alone, or (STOCK) with an MPI library after it.
 */
#include "mpi_psets.h"

enum { PARENTS = 2, CHILDREN = 3, ALL = PARENTS + CHILDREN };

static const char SUFFIX[] = "/with-parent";
static int rank, size, is_child;

/* The name of the set of both jobs, which is in the list as soon as both exist. */
static void find_both(MPI_Session session, char *both)
{
    size_t suffix = strlen(SUFFIX);
    for (;;) {
        int count;
        OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
        for (int n = 0; n < count; n++) {
            int length = MPI_MAX_PSET_NAME_LEN;
            OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, both));
            if (strlen(both) > suffix && !strcmp(both + strlen(both) - suffix, SUFFIX))
                return;
        }
        usleep(1000);
    }
}

static int is_known(MPI_Session session, const char *name)
{
    MPI_Info info;
    if (MPI_Session_get_pset_info(session, name, &info) != MPI_SUCCESS)
        return 0;
    OK(MPI_Info_free(&info));
    return 1;
}

/* Sets are the only way in which the two jobs tell each other anything. */
static void wait_for(MPI_Session session, const char *name)
{
    while (!is_known(session, name))
        usleep(1000);
}

/* Defines a set of all ranks as a signal, and waits for those of all others. */
static void meet(MPI_Session session, const char *both, const char *where)
{
    char name[64];
    sprintf(name, "%s-%d", where, rank + (is_child ? PARENTS : 0));
    OK(hydrant_pset_union(session, both, "mpi://SELF", name));
    for (int other = 0; other < ALL; other++) {
        sprintf(name, "%s-%d", where, other);
        wait_for(session, name);
        CHECK(size_of_pset(session, name) == ALL);
    }
}

static void groups(MPI_Session session, const char *both)
{
    MPI_Group all;
#ifdef STOCK
    /* The MPI library does not know the ranks of the other job by number. */
    CHECK(MPI_Group_from_session_pset(session, both, &all) == MPI_ERR_UNSUPPORTED_OPERATION);
#else
    MPI_Group world, common;
    int members, mine, ranks[ALL] = {0, 1, 2, 3, 4}, there[ALL], first = is_child ? PARENTS : 0;
    OK(MPI_Group_from_session_pset(session, both, &all));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world));
    OK(MPI_Group_size(all, &members));
    OK(MPI_Group_rank(all, &mine));
    CHECK(members == ALL && mine == first + rank);
    OK(MPI_Group_translate_ranks(all, ALL, ranks, world, there));
    for (int i = 0; i < ALL; i++)
        CHECK(there[i] == (i >= first && i < first + size ? i - first : MPI_UNDEFINED));
    OK(MPI_Group_difference(all, world, &common));
    OK(MPI_Group_size(common, &members));
    CHECK(members == ALL - size);
    OK(MPI_Group_free(&common));
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&all));
#endif
}

static void sets(MPI_Session session, const char *both)
{
    char job[MPI_MAX_PSET_NAME_LEN];
    CHECK(size_of_pset(session, both) == ALL);
    CHECK(size_of_pset(session, "mpi://WORLD") == size && size_of_pset(session, "mpi://SELF") == 1);
    /* The set of the spawned job is that of its ranks. */
    strcpy(job, both);
    job[strlen(job) - strlen(SUFFIX)] = 0;
    CHECK(is_known(session, job) == is_child);
    if (is_child)
        CHECK(size_of_pset(session, job) == CHILDREN);
    groups(session, both);
    /* Each job defines the set of the other one, and one of its own with the same name in both. */
    OK(hydrant_pset_difference(session, both, "mpi://WORLD", is_child ? "parents" : "children"));
    wait_for(session, is_child ? "children" : "parents");
    CHECK(size_of_pset(session, is_child ? "children" : "parents") == size);
    CHECK(!is_known(session, is_child ? "parents" : "children"));
    OK(hydrant_pset_intersection(session, both, "mpi://WORLD", "own"));
    CHECK(size_of_pset(session, "own") == size);
    CHECK(hydrant_pset_difference(session, "own", both, "none") == MPI_ERR_ARG);
    CHECK(hydrant_pset_union(session, "own", both, "own") == MPI_ERR_ARG);
    /* A set that the parent defines and a child removes. */
    OK(hydrant_pset_union(session, "own", both, "step"));
    CHECK(size_of_pset(session, "step") == ALL);
    meet(session, both, "defined");
    if (is_child && rank == 1) {
        OK(hydrant_pset_retire(session, "step"));
        OK(hydrant_pset_prune(session));
    }
    meet(session, both, "removed");
    CHECK(!is_known(session, "step"));
}

#ifndef STOCK
/* The spawned job ends once no rank of the parent needs a common set, and the parent after it. */
static void leave(MPI_Session session, const char *both)
{
    char name[64];
    if (!is_child) {
        sprintf(name, "done-%d", rank);
        OK(hydrant_pset_union(session, both, "mpi://SELF", name));
        while (is_known(session, both))
            usleep(1000);
        CHECK(!is_known(session, name) && is_known(session, "own"));
        return;
    }
    for (int parent = 0; parent < PARENTS; parent++) {
        sprintf(name, "done-%d", parent);
        wait_for(session, name);
    }
}

/* Sends a message of PMI-2 and expects success. */
static void request(int fd, const char *message)
{
    char text[4096];
    size_t done = 0, len;
    len = sprintf(text, "%6zu%s", strlen(message), message);
    CHECK(write(fd, text, len) == (ssize_t)len);
    for (len = 6; done < len;) {
        ssize_t got = read(fd, text + done, len - done);
        CHECK(got > 0);
        done += got;
        text[done] = 0;
        if (done == 6)
            len = 6 + atoi(text);
        CHECK(len < sizeof text);
    }
    CHECK(strstr(text, "rc=0;"));
}

/* Spawns by the process manager's protocol, because there is no library for it. */
static void spawn(const char *self)
{
    const char init[] = "cmd=init pmi_version=2 pmi_subversion=0\n";
    char text[1024], last = 0;
    int fd = atoi(getenv("PMI_FD"));
    CHECK(write(fd, init, strlen(init)) == (ssize_t)strlen(init));
    while (last != '\n')
        CHECK(read(fd, &last, 1) == 1);
    request(fd, "cmd=fullinit;pmirank=0;threaded=FALSE;");
    CHECK(snprintf(text, sizeof text,
                   "cmd=spawn;ncmds=1;preputcount=0;subcmd=%s;maxprocs=%d;argc=1;argv0=child;infokeycount=0;",
                   self, CHILDREN) < (int)sizeof text);
    request(fd, text);
    request(fd, "cmd=finalize;");
}
#endif

int main(int argc, char **argv)
{
    MPI_Session session;
    char both[MPI_MAX_PSET_NAME_LEN];
    rank = atoi(getenv("PMI_RANK"));
    size = atoi(getenv("PMI_SIZE"));
    is_child = argc > 1;
    CHECK(size == (is_child ? CHILDREN : PARENTS));
#ifdef STOCK
    MPI_Comm other;
    char *args[] = {"child", NULL};
    OK(MPI_Init(NULL, NULL));
    if (!is_child)
        OK(MPI_Comm_spawn(argv[0], args, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE));
    else
        OK(MPI_Comm_get_parent(&other));
#else
    if (!is_child && rank == 0)
        spawn(argv[0]);
#endif
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    find_both(session, both);
    sets(session, both);
    /* The common sets end with the first of the two jobs. */
#ifdef STOCK
    OK(MPI_Barrier(other));
    OK(MPI_Comm_disconnect(&other));
#else
    leave(session, both);
#endif
    OK(MPI_Session_finalize(&session));
#ifdef STOCK
    OK(MPI_Finalize());
#endif
    SAY("sets of both jobs are well");
    return 0;
}
