/* Process sets that are retired and pruned.
 *
 *   hydrant run --mpi-psets -n 3 ./mpi_pset_prune
 *
 * Built with libhydrant_mpi alone, or (STOCK) with an MPI library after it.
 */
#include "mpi_psets.h"

enum { ROUNDS = 200 };

static MPI_Session session;
static int rank, size;

static int number_of_sets(void)
{
    int count;
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    return count;
}

/* The index of a set in the list of this process, or -1. */
static int index_of(const char *uri)
{
    char name[MPI_MAX_PSET_NAME_LEN];
    for (int i = 0; i < number_of_sets(); i++) {
        int length = sizeof name;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
        if (!strcmp(name, uri))
            return i;
    }
    return -1;
}

static int has(const char *name)
{
    MPI_Info info;
    if (MPI_Session_get_pset_info(session, name, &info) != MPI_SUCCESS)
        return 0;
    OK(MPI_Info_free(&info));
    return 1;
}

/* Defines a set of rank 0 and this rank as a signal, and waits for those of all others at rank 0. */
static void meet(const char *what)
{
    char name[64];
    if (rank != 0) {
        sprintf(name, "%s.%d", what, rank);
        OK(hydrant_pset_define(session, name, 2, (int[]){0, rank}));
    }
    for (int other = 1; rank == 0 && other < size; other++) {
        sprintf(name, "%s.%d", what, other);
        while (!has(name))
            usleep(1000);
    }
}

/* More sets than the table has room for, one after the other. */
static void again_and_again(void)
{
    char name[64], uri[80];
    int before = number_of_sets();
    for (int round = 0; round < ROUNDS; round++) {
        /* Every other name is used again. */
        sprintf(name, "own.%d.%d", rank, round % 2 ? 0 : round);
        sprintf(uri, "app://%s", name);
        OK(hydrant_pset_define(session, name, 1, &rank));
        int place = index_of(uri);
        CHECK(place >= before);
        OK(hydrant_pset_retire(session, name));
        OK(hydrant_pset_retire(session, uri));
        /* It stays in the list of this process and can be used. */
        CHECK(index_of(uri) == place && size_of_pset(session, name) == 1);
        CHECK(hydrant_pset_define(session, name, 1, &rank) == MPI_ERR_ARG);
        OK(hydrant_pset_prune(session));
        CHECK(index_of(uri) < 0 && !has(name));
    }
    /* Other ranks may have defined sets with this rank. */
    CHECK(number_of_sets() <= before + size);
}

/* A set of all ranks, which rank 0 retires and removes. */
static void shared(void)
{
    int ranks[64], place;
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    if (rank == 0)
        OK(hydrant_pset_define(session, "shared", size, ranks));
    while (!has("shared"))
        usleep(1000);
    place = index_of("app://shared");
    CHECK(place >= 0);
    meet("known");
    if (rank == 0) {
        OK(hydrant_pset_retire(session, "shared"));
        CHECK(size_of_pset(session, "shared") == size && index_of("app://shared") == place);
        OK(hydrant_pset_prune(session));
        CHECK(!has("shared") && index_of("app://shared") < 0);
    } else {
        while (has("shared"))
            usleep(1000);
        /* Name and index stay until this process prunes. */
        CHECK(index_of("app://shared") == place);
        OK(hydrant_pset_prune(session));
        CHECK(index_of("app://shared") < 0);
    }
    meet("removed");
}

/* A set that rank 0 removes and defines again: another set, which the others get under this name once they have pruned. */
static void defined_again(void)
{
    int ranks[64], place;
    MPI_Info info;
    MPI_Group group;
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    if (rank == 0)
        OK(hydrant_pset_define(session, "again", size, ranks));
    while (!has("again"))
        usleep(1000);
    place = index_of("app://again");
    CHECK(place >= 0);
    meet("listed");
    if (rank == 0) {
        OK(hydrant_pset_retire(session, "again"));
        OK(hydrant_pset_prune(session));
        OK(hydrant_pset_define(session, "again", size, ranks));
        OK(hydrant_pset_define(session, "there", size, ranks));
        CHECK(size_of_pset(session, "again") == size);
    } else {
        while (!has("there"))
            usleep(1000);
        CHECK(index_of("app://again") == place);
        CHECK(MPI_Session_get_pset_info(session, "again", &info) == MPI_ERR_ARG);
        CHECK(MPI_Session_get_pset_info(session, "app://again", &info) == MPI_ERR_ARG);
        CHECK(MPI_Group_from_session_pset(session, "again", &group) == MPI_ERR_ARG);
        CHECK(hydrant_pset_union(session, "again", "mpi://SELF", "mixed") == MPI_ERR_ARG);
        CHECK(hydrant_pset_retire(session, "again") == MPI_ERR_ARG);
        OK(hydrant_pset_prune(session));
        CHECK(size_of_pset(session, "again") == size && index_of("app://again") >= 0);
    }
    meet("renewed");
}

static void refused(void)
{
    CHECK(hydrant_pset_retire(session, "mpi://WORLD") == MPI_ERR_ARG);
    CHECK(hydrant_pset_retire(session, "MPI://self") == MPI_ERR_ARG);
    CHECK(hydrant_pset_retire(session, "nobody") == MPI_ERR_ARG);
    CHECK(hydrant_pset_retire(session, "") == MPI_ERR_ARG);
    CHECK(hydrant_pset_retire(session, NULL) == MPI_ERR_ARG);
    CHECK(has("mpi://WORLD") && has("mpi://SELF"));
}

int main(void)
{
    rank = getenv("PMI_RANK") ? atoi(getenv("PMI_RANK")) : 0;
    size = getenv("PMI_SIZE") ? atoi(getenv("PMI_SIZE")) : 1;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    if (getenv("HYDRANT_QUERY")) {
        refused();
        again_and_again();
        shared();
        defined_again();
    } else {
        CHECK(hydrant_pset_retire(session, "x") == MPI_ERR_UNSUPPORTED_OPERATION);
        CHECK(hydrant_pset_prune(session) == MPI_ERR_UNSUPPORTED_OPERATION);
    }
#ifdef STOCK
    /* MPICH 5.0.2 may hang if a rank finalizes while another one still initializes. */
    MPI_Group world;
    MPI_Comm comm;
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world));
    OK(MPI_Comm_create_from_group(world, "pruned", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Group_free(&world));
#endif
    OK(MPI_Session_finalize(&session));
    SAY("pruned well");
    return 0;
}
