/* Groups of process sets, and all local operations on them (MPI 5.0, 7.3).
 *
 *   hydrant run --mpi-psets -n 2 --pset ocean ./mpi_groups : -n 3 --pset atmos ./mpi_groups
 *
 * Built with libhydrant_mpi alone, or (STOCK) with an MPI library after it. Alone, calls with invalid arguments return errors
 * (HYDRANT_MPI_INITIAL_ERRHANDLER=mpi_errors_return).
 */
#ifdef STOCK
#include "mpi_check.h"
#else
#include "mpi_own.h"
#endif

static int rank, size;

static int size_of_group(MPI_Group group)
{
    int count;
    OK(MPI_Group_size(group, &count));
    return count;
}

static int rank_in_group(MPI_Group group)
{
    int mine;
    OK(MPI_Group_rank(group, &mine));
    return mine;
}

static int compare(MPI_Group one, MPI_Group other)
{
    int result;
    OK(MPI_Group_compare(one, other, &result));
    return result;
}

static MPI_Group group_of(MPI_Session session, const char *name)
{
    MPI_Group group;
    OK(MPI_Group_from_session_pset(session, name, &group));
    return group;
}

static void of_sets(MPI_Session session, MPI_Group world)
{
    MPI_Group self = group_of(session, "mpi://SELF"), rest, whole, both;
    int there, mine = 0;
    CHECK(size_of_group(world) == size && rank_in_group(world) == rank);
    CHECK(size_of_group(self) == 1 && rank_in_group(self) == 0);
    OK(MPI_Group_translate_ranks(self, 1, &mine, world, &there));
    CHECK(there == rank);
    OK(MPI_Group_difference(world, self, &rest));
    CHECK(size_of_group(rest) == size - 1 && rank_in_group(rest) == MPI_UNDEFINED);
    CHECK((rest == MPI_GROUP_EMPTY) == (size == 1));
    /* The union begins with the first group. */
    OK(MPI_Group_union(self, rest, &whole));
    CHECK(rank_in_group(whole) == 0);
    CHECK(compare(world, whole) == (rank == 0 ? MPI_IDENT : MPI_SIMILAR));
    OK(MPI_Group_intersection(world, self, &both));
    CHECK(compare(both, self) == MPI_IDENT);
    CHECK(compare(both, rest) == MPI_UNEQUAL);
    OK(MPI_Group_free(&both));
    CHECK(both == MPI_GROUP_NULL);
    OK(MPI_Group_intersection(rest, self, &both));
    CHECK(both == MPI_GROUP_EMPTY && size_of_group(both) == 0);
    OK(MPI_Group_free(&whole));
    if (rest != MPI_GROUP_EMPTY)
        OK(MPI_Group_free(&rest));
    OK(MPI_Group_free(&self));
}

/* Programs 0 and 1 have the sets ocean (ranks 0 and 1) and atmos (2, 3, 4). */
static void of_programs(MPI_Session session, MPI_Group world)
{
    const char *name = rank < 2 ? "ocean" : "app://atmos";
    int first = rank < 2 ? 0 : 2, count = rank < 2 ? 2 : 3, ranks[4] = {0, 1, MPI_PROC_NULL, 0}, there[4];
    MPI_Group mine = group_of(session, name), others;
    CHECK(size_of_group(mine) == count && rank_in_group(mine) == rank - first);
    OK(MPI_Group_translate_ranks(mine, 4, ranks, world, there));
    CHECK(there[0] == first && there[1] == first + 1 && there[2] == MPI_PROC_NULL && there[3] == first);
    OK(MPI_Group_difference(world, mine, &others));
    ranks[0] = first;
    OK(MPI_Group_translate_ranks(world, 1, ranks, others, there));
    CHECK(size_of_group(others) == size - count && there[0] == MPI_UNDEFINED);
    OK(MPI_Group_free(&others));
    OK(MPI_Group_free(&mine));
}

static void of_ranks(MPI_Group world)
{
    int last_first[2] = {4, 0}, ranges[2][3] = {{4, 3, -1}, {0, 2, 2}}, there[4], all[4] = {0, 1, 2, 3};
    MPI_Group group, other;
    OK(MPI_Group_incl(world, 2, last_first, &group));
    OK(MPI_Group_translate_ranks(group, 2, all, world, there));
    CHECK(size_of_group(group) == 2 && there[0] == 4 && there[1] == 0);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_excl(world, 2, last_first, &group));
    OK(MPI_Group_translate_ranks(group, 3, all, world, there));
    CHECK(size_of_group(group) == 3 && there[0] == 1 && there[1] == 2 && there[2] == 3);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_range_incl(world, 2, ranges, &group));
    OK(MPI_Group_translate_ranks(group, 4, all, world, there));
    CHECK(size_of_group(group) == 4 && there[0] == 4 && there[1] == 3 && there[2] == 0 && there[3] == 2);
    OK(MPI_Group_range_excl(world, 2, ranges, &other));
    CHECK(size_of_group(other) == 1 && (rank_in_group(other) == 0) == (rank == 1));
    OK(MPI_Group_free(&other));
    OK(MPI_Group_free(&group));
    OK(MPI_Group_incl(world, 0, NULL, &group));
    CHECK(group == MPI_GROUP_EMPTY);
    OK(MPI_Group_excl(world, 0, NULL, &group));
    CHECK(compare(group, world) == MPI_IDENT);
    OK(MPI_Group_free(&group));
}

#ifndef STOCK
static int calls;

static void handler(MPI_Session *session, int *code, ...)
{
    calls++;
}

static void wrong_calls(MPI_Session session, MPI_Group world)
{
    int ranks[2] = {0, 0}, range[1][3] = {{0, 0, 0}}, there[2], count;
    MPI_Group group = group_of(session, "mpi://SELF"), gone = group, none = MPI_GROUP_EMPTY;
    MPI_Errhandler mine;
    OK(MPI_Group_free(&group));
    CHECK(MPI_Group_size(gone, &count) == MPI_ERR_GROUP);
    CHECK(MPI_Group_free(&gone) == MPI_ERR_GROUP);
    CHECK(MPI_Group_size(MPI_GROUP_NULL, &count) == MPI_ERR_GROUP);
    CHECK(MPI_Group_rank((MPI_Group)session, &count) == MPI_ERR_GROUP);
    CHECK(MPI_Group_union(world, MPI_GROUP_NULL, &group) == MPI_ERR_GROUP);
    OK(MPI_Group_free(&none));
    CHECK(none == MPI_GROUP_NULL && MPI_Group_free(&none) == MPI_ERR_GROUP);
    CHECK(size_of_group(MPI_GROUP_EMPTY) == 0 && rank_in_group(MPI_GROUP_EMPTY) == MPI_UNDEFINED);
    /* The handler of the session from which the group is derived. */
    OK(MPI_Session_create_errhandler(handler, &mine));
    OK(MPI_Session_set_errhandler(session, mine));
    OK(MPI_Errhandler_free(&mine));
    CHECK(MPI_Group_incl(world, 2, ranks, &group) == MPI_ERR_RANK && calls == 1);
    CHECK(MPI_Group_excl(world, 2, ranks, &group) == MPI_ERR_RANK && calls == 2);
    ranks[1] = size;
    CHECK(MPI_Group_incl(world, 2, ranks, &group) == MPI_ERR_RANK && calls == 3);
    CHECK(MPI_Group_translate_ranks(world, 2, ranks, world, there) == MPI_ERR_RANK && calls == 4);
    CHECK(MPI_Group_incl(world, -1, ranks, &group) == MPI_ERR_ARG && calls == 5);
    CHECK(MPI_Group_range_incl(world, 1, range, &group) == MPI_ERR_ARG && calls == 6);
    CHECK(MPI_Group_size(world, NULL) == MPI_ERR_ARG && calls == 7);
    CHECK(MPI_Group_union(world, world, NULL) == MPI_ERR_ARG && calls == 8);
    CHECK(MPI_Group_from_session_pset(session, "app://nobody", &group) == MPI_ERR_ARG && calls == 9);
    CHECK(MPI_Group_from_session_pset(session, "mpi://WORLD", NULL) == MPI_ERR_ARG && calls == 10);
    CHECK(MPI_Group_from_session_pset(MPI_SESSION_NULL, "mpi://WORLD", &group) == MPI_ERR_SESSION && calls == 10);
}
#endif

int main(void)
{
    MPI_Session session;
    rank = getenv("PMI_RANK") ? atoi(getenv("PMI_RANK")) : 0;
    size = getenv("PMI_SIZE") ? atoi(getenv("PMI_SIZE")) : 1;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MPI_Group world = group_of(session, "mpi://WORLD");
    of_sets(session, world);
    if (size == 5) {
        of_programs(session, world);
        of_ranks(world);
    }
#ifdef STOCK
    /* MPICH 5.0.2 may hang if a rank finalizes while another one still initializes. */
    MPI_Comm comm;
    OK(MPI_Comm_create_from_group(world, "mpi_groups", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
#else
    wrong_calls(session, world);
    /* A group is not freed with its session. */
    MPI_Session second;
    MPI_Group of_second;
    int members;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &second));
    OK(MPI_Group_from_session_pset(second, "mpi://SELF", &of_second));
    OK(MPI_Session_finalize(&second));
    OK(MPI_Group_size(of_second, &members));
    CHECK(members == 1);
    OK(MPI_Group_free(&of_second));
#endif
    OK(MPI_Group_free(&world));
    OK(MPI_Session_finalize(&session));
    SAY("groups are well");
    return 0;
}
