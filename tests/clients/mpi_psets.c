/* Process sets of a rank, and the rules for all of them (MPI 5.0, 11.3.2).
 *
 *   mpi_psets            one line per set, then a set that is defined while the job runs
 *
 * Built with libhydrant_mpi alone, or (STOCK) with an MPI library after it.
 */
// Test: libraries `mpi::alone::process_sets_under_hydrant`
#include "mpi_psets.h"

static int rank, size;

static int number_of(MPI_Session session)
{
    int count;
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    return count;
}

/* The name of a set, from each function that returns it. */
// Shows: MPI Sessions, Process sets | `MPI_Session_get_nth_pset` `pset_name` | truncated to the buffer, unchanged for
// size 0, else with NUL | done
// Also: libraries `mpi::beside::every_rule_holds_for_every_set`
static void name_of(MPI_Session session, int n, char *name)
{
    char buffer[MPI_MAX_PSET_NAME_LEN + 1];
    int length = MPI_MAX_PSET_NAME_LEN, needed;
    memset(name, '#', MPI_MAX_PSET_NAME_LEN);
    OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name));
    needed = strlen(name) + 1;
    CHECK(length == needed);
    for (int room = 0; room <= needed + 1; room++) {
        memset(buffer, '#', sizeof buffer);
        length = room;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, buffer));
        int fits = room < needed ? room : needed;
        CHECK(length == needed && buffer[room] == '#');
        if (room == 0)
            continue;
        CHECK(buffer[fits - 1] == 0 && !strncmp(buffer, name, fits - 1));
        CHECK(room <= needed || buffer[needed] == '#');
    }
    length = 0;
    OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, NULL));
    CHECK(length == needed);
}

#ifdef STOCK
/* A communicator of a set works and has the ranks of the set in order. */
static void communicate(MPI_Session session, const char *name, int members)
{
    MPI_Group group;
    MPI_Comm comm;
    int ranks[64], mine = rank;
    OK(MPI_Group_from_session_pset(session, name, &group));
    OK(MPI_Comm_create_from_group(group, name, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    CHECK(size_of(comm) == members && members <= 64);
    OK(MPI_Allgather(&mine, 1, MPI_INT, ranks, 1, MPI_INT, comm));
    CHECK(ranks[rank_in(comm)] == rank);
    for (int i = 1; i < members; i++)
        CHECK(ranks[i - 1] < ranks[i]);
    char text[1024] = "";
    for (int i = 0; i < members; i++)
        sprintf(text + strlen(text), " %d", ranks[i]);
    SAY("rank %d: communicator of %s:%s", rank, name, text);
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_free(&comm));
}
#endif

/* Number of sets, without the one that other ranks may have defined. */
// Shows: MPI Sessions, Process sets | `MPI_Session_get_num_psets` | sets of which this process is a member | done:
// without retired ones that are not in its list yet, and with removed ones until it prunes
// Also: libraries `mpi::beside::every_rule_holds_for_every_set`, `mpi::alone::retired_sets_are_pruned`
// Shows: MPI Sessions, Process sets | `MPI_Session_get_nth_pset` `n` | a name for each index | done: an error for
// others
// Shows: MPI Sessions, Process sets | `MPI_Session_get_pset_info` | a new object with `mpi_size` | done: an error for
// an unknown name
// Also: libraries `mpi::beside::every_rule_holds_for_every_set`
static int show(MPI_Session session)
{
    char name[MPI_MAX_PSET_NAME_LEN], again[MPI_MAX_PSET_NAME_LEN];
    int count = number_of(session);
    CHECK(count >= 2);
    for (int i = 0; i < count; i++) {
        name_of(session, i, name);
        if (!strcmp(name, "app://even"))
            return i;
        int members = size_of_pset(session, name);
        SAY("rank %d: set %d is %s of %d", rank, i, name, members);
        name_of(session, i, again);
        CHECK(!strcmp(name, again));
    }
    return count;
}

/* Even ranks define a set of even ranks. Odd ranks do not see it. */
// Shows: MPI Sessions, Process sets | `MPI_Session_get_num_psets` | the number may grow | done: `hydrant_pset_define`
// Also: libraries `mpi::beside::every_rule_holds_for_every_set`
// Shows: MPI Sessions, Process sets | a runtime that creates sets | may do so while the program runs | done
// Also: nodes `dynamic::a_process_set_that_one_defines_is_everybodys`
static void define(MPI_Session session)
{
    int even[64], count = 0, before = number_of(session), code, found = -1;
    char name[MPI_MAX_PSET_NAME_LEN];
    for (int i = size - 1; i >= 0; i--)
        if (i % 2 == 0)
            even[count++] = i;
    if (rank % 2 == 0) {
        OK(hydrant_pset_define(session, "app://even", count, even));
        OK(hydrant_pset_define(session, "app://even", count, even));
        /* The same set without its scheme. */
        OK(hydrant_pset_define(session, "even", count, even));
        CHECK(size_of_pset(session, "even") == count);
        /* Another rank may have defined it before. */
        for (int i = 0; i < number_of(session); i++) {
            name_of(session, i, name);
            if (!strcmp(name, "app://even")) {
                CHECK(found < 0);
                found = i;
            }
        }
        CHECK(found == number_of(session) - 1 && (found == before || found == before - 1));
        CHECK(size_of_pset(session, "app://even") == count);
        code = hydrant_pset_define(session, "app://even", 1, (int[]){size});
        CHECK(code == MPI_ERR_ARG);
        code = hydrant_pset_define(session, "app://even", 2, (int[]){0, 1});
        CHECK(code == MPI_ERR_ARG || size < 2);
        SAY("rank %d: defined %s of %d as number %d", rank, name, count, found);
#ifdef STOCK
        communicate(session, name, count);
#endif
    } else {
        MPI_Info info;
        CHECK(number_of(session) == before);
        code = MPI_Session_get_pset_info(session, "app://even", &info);
        CHECK(code != MPI_SUCCESS);
    }
    CHECK(hydrant_pset_define(session, "mpi://mine", 1, &rank) == MPI_ERR_ARG);
    CHECK(hydrant_pset_define(session, "", 1, &rank) == MPI_ERR_ARG);
    CHECK(hydrant_pset_define(session, "two words", 1, &rank) == MPI_ERR_ARG);
    CHECK(hydrant_pset_define(session, "negative", 1, (int[]){-1}) == MPI_ERR_ARG);
    CHECK(hydrant_pset_define(session, "none", 0, NULL) == MPI_ERR_ARG);
}

#ifndef STOCK
#include <sys/wait.h>

/* A process that is forked asks on a connection of its own, and does not come in between. */
static void in_a_child(MPI_Session session, int count)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(number_of(session) >= count && size_of_pset(session, "mpi://WORLD") == size);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(number_of(session) >= count && size_of_pset(session, "mpi://WORLD") == size);
}
#endif

int main(void)
{
    MPI_Session session, second;
    MPI_Info info;
    int length = 0;
    rank = getenv("PMI_RANK") ? atoi(getenv("PMI_RANK")) : 0;
    size = getenv("PMI_SIZE") ? atoi(getenv("PMI_SIZE")) : 1;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &second));
    int first = show(session);
    CHECK(size_of_pset(session, "mpi://WORLD") == size && size_of_pset(session, "mpi://SELF") == 1);
    CHECK(number_of(second) >= first);
    CHECK(MPI_Session_get_pset_info(session, "app://nobody", &info) != MPI_SUCCESS);
    CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, -1, &length, NULL) != MPI_SUCCESS);
    CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 1000, &length, NULL) != MPI_SUCCESS);
    OK(MPI_Session_finalize(&second));
#ifndef STOCK
    in_a_child(session, first);
#else
    char name[MPI_MAX_PSET_NAME_LEN];
    for (int i = 0; i < first; i++) {
        name_of(session, i, name);
        communicate(session, name, size_of_pset(session, name));
    }
    MPI_Group group;
    CHECK(MPI_Group_from_session_pset(session, "app://nobody", &group) != MPI_SUCCESS);
#endif
    if (getenv("HYDRANT_QUERY"))
        define(session);
#ifndef STOCK
    else
        CHECK(hydrant_pset_define(session, "x", 1, &rank) == MPI_ERR_UNSUPPORTED_OPERATION);
#endif
    OK(MPI_Session_finalize(&session));
    return 0;
}
