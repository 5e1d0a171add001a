/* A program that grows from 4 to 8 ranks on a host that joins for it, and shrinks to 2.
 *
 *   hydrant run -hosts n1:4 --elastic 2 -n 2 ./mpi_elastic world c:4
 *
 *   world HOSTS      2 ranks spawn 2, and these 4 spawn 4 on HOSTS, which join. All work together, and then those that have
 *                    been spawned leave. Rank 0 reads a line before it ends, so that the hosts can be given back.
 *   sessions HOSTS   2 ranks spawn 2 on HOSTS, and both find the new process sets in their sessions
 */
#include "mpi_check.h"
#include "mpi_pset_size.h"
#include <ctype.h>

static char *self;

/* All ranks together spawn others, on hosts that join, if some are named. Returns a communicator of both. */
static MPI_Comm grow(MPI_Comm comm, int count, char **argv, const char *hosts)
{
    MPI_Info info;
    MPI_Comm spawned, both;
    OK(MPI_Info_create(&info));
    if (hosts != NULL)
        OK(MPI_Info_set(info, "add-host", hosts));
    OK(MPI_Comm_spawn(self, argv, count, info, 0, comm, &spawned, MPI_ERRCODES_IGNORE));
    OK(MPI_Info_free(&info));
    OK(MPI_Intercomm_merge(spawned, 0, &both));
    OK(MPI_Comm_disconnect(&spawned));
    return both;
}

/* The spawned ranks' part of it. */
static MPI_Comm join(void)
{
    MPI_Comm parent, both;
    OK(MPI_Comm_get_parent(&parent));
    OK(MPI_Intercomm_merge(parent, 1, &both));
    OK(MPI_Comm_disconnect(&parent));
    return both;
}

/* Something that needs all ranks. */
static void work(MPI_Comm comm)
{
    int one = 1, sum = 0;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size_of(comm));
    if (rank_in(comm) == 0)
        SAY("%d ranks", sum);
}

static void world(const char *step, char *hosts)
{
    MPI_Comm four, eight;
    if (!strcmp(step, "eight")) {
        eight = join();
        SAY("rank %d of 8", rank_in(eight));
        work(eight);
        OK(MPI_Comm_disconnect(&eight));
        return;
    }
    if (!strcmp(step, "four"))
        four = join();
    else
        four = grow(MPI_COMM_WORLD, 2, (char *[]){"four", hosts, NULL}, NULL);
    work(four);
    eight = grow(four, 4, (char *[]){"eight", hosts, NULL}, hosts);
    work(eight);
    /* Both sides of each spawn disconnect, and those that have been spawned end. */
    OK(MPI_Comm_disconnect(&eight));
    work(four);
    OK(MPI_Comm_disconnect(&four));
    if (!strcmp(step, "four"))
        return;
    work(MPI_COMM_WORLD);
    if (rank_in(MPI_COMM_WORLD) == 0)
        CHECK(getchar() == '\n');
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static int sets_of(MPI_Session session)
{
    int count;
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    return count;
}

static void name_of(MPI_Session session, int n, char *name)
{
    int length = MPI_MAX_PSET_NAME_LEN;
    OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name));
}

/* A communicator of a set. */
static MPI_Comm comm_of(MPI_Session session, const char *set)
{
    MPI_Group group;
    MPI_Comm comm;
    OK(MPI_Group_from_session_pset(session, set, &group));
    OK(MPI_Comm_create_from_group(group, set, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Group_free(&group));
    return comm;
}

/* The set of the ranks on this host: of hydrant, or of Open MPI. */
static void say_host(MPI_Session session)
{
    for (int n = 0; n < sets_of(session); n++) {
        char name[MPI_MAX_PSET_NAME_LEN], lower[MPI_MAX_PSET_NAME_LEN];
        name_of(session, n, name);
        for (size_t at = 0; at <= strlen(name); at++)
            lower[at] = tolower(name[at]);
        if (strncmp(lower, "hydrant://node/", 15) && strcmp(lower, "mpix://shared"))
            continue;
        MPI_Comm comm = comm_of(session, name);
        work(comm);
        SAY("rank %d of %s", rank_in(comm), lower);
        OK(MPI_Comm_free(&comm));
    }
}

/* MPI_Comm_spawn and MPI_Comm_get_parent are of the World Model: stock libraries fail in a process that has only sessions. */
static void sessions(int is_spawned, char *hosts)
{
    MPI_Session session;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    int before = sets_of(session);
    MPI_Comm all = is_spawned ? join() : grow(MPI_COMM_WORLD, 2, (char *[]){"spawned", hosts, NULL}, hosts);
    work(all);
    say_host(session);
    /* Indices stay, and new sets are behind the others. */
    for (int n = before; n < sets_of(session); n++) {
        char name[MPI_MAX_PSET_NAME_LEN];
        name_of(session, n, name);
        SAY("new set %s of %d", name, size_of_pset(session, name));
    }
    OK(MPI_Barrier(all));
    OK(MPI_Comm_disconnect(&all));
    OK(MPI_Session_finalize(&session));
}

int main(int argc, char **argv)
{
    self = argv[0];
    CHECK(argc == 3);
    OK(MPI_Init(&argc, &argv));
    if (!strcmp(argv[1], "sessions") || !strcmp(argv[1], "spawned"))
        sessions(!strcmp(argv[1], "spawned"), argv[2]);
    else
        world(argv[1], argv[2]);
    OK(MPI_Finalize());
    return 0;
}
