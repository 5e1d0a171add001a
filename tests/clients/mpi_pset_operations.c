/* Process sets that ranks make of others: union, intersection, difference.
 *
 *   hydrant run --mpi-psets -n 2 ./mpi_pset_operations : -n 3 ./mpi_pset_operations
 *
 * Built with libhydrant_mpi alone, or (STOCK) with an MPI library after it.
 */
#include "mpi_psets.h"

static int rank, size;

/* Sets from the set of this rank's program and the ranks with the same parity. Ranks with the same sets make the same calls at
 * the same time. */
static void combine(MPI_Session session)
{
    char parity[32], both[32], either[32], others[32];
    const char *program = rank < 2 ? "hydrant://app/0" : "hydrant://app/1";
    int ranks[64], count = 0, members = rank < 2 ? 2 : 3, common = rank < 2 ? 1 : 2 - rank % 2;
    MPI_Info info;
    for (int i = rank % 2; i < size; i += 2)
        ranks[count++] = i;
    sprintf(parity, "parity%d", rank % 2);
    sprintf(both, "both%d.%d", rank % 2, members);
    sprintf(either, "either%d.%d", rank % 2, members);
    sprintf(others, "others%d", rank % 2);
    OK(hydrant_pset_define(session, parity, count, ranks));
    CHECK(size_of_pset(session, program) == members);
    OK(hydrant_pset_intersection(session, program, parity, both));
    CHECK(size_of_pset(session, both) == common);
    OK(hydrant_pset_union(session, program, parity, either));
    CHECK(size_of_pset(session, either) == members + count - common);
    /* This rank is not in the difference. */
    OK(hydrant_pset_difference(session, "mpi://WORLD", parity, others));
    CHECK(MPI_Session_get_pset_info(session, others, &info) != MPI_SUCCESS);
    OK(hydrant_pset_union(session, "mpi://SELF", parity, parity));
    CHECK(hydrant_pset_difference(session, parity, parity, "none") == MPI_ERR_ARG);
    CHECK(hydrant_pset_union(session, parity, "app://nobody", "none") == MPI_ERR_ARG);
    CHECK(hydrant_pset_union(session, parity, program, "mpi://x") == MPI_ERR_ARG);
    CHECK(hydrant_pset_union(session, program, "mpi://WORLD", parity) == MPI_ERR_ARG);
    CHECK(hydrant_pset_union(session, NULL, program, "none") == MPI_ERR_ARG);
}

int main(void)
{
    MPI_Session session;
    rank = getenv("PMI_RANK") ? atoi(getenv("PMI_RANK")) : 0;
    size = getenv("PMI_SIZE") ? atoi(getenv("PMI_SIZE")) : 1;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    if (size == 5)
        combine(session);
#ifdef STOCK
    /* MPICH 5.0.2 may hang if a rank finalizes while another one still initializes. */
    MPI_Group world;
    MPI_Comm comm;
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world));
    OK(MPI_Comm_create_from_group(world, "operations", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Group_free(&world));
#else
    if (size == 1)
        CHECK(hydrant_pset_union(session, "mpi://WORLD", "mpi://SELF", "x") == MPI_ERR_UNSUPPORTED_OPERATION);
#endif
    OK(MPI_Session_finalize(&session));
    SAY("sets are well");
    return 0;
}
