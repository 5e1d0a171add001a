/* Splits MPI_COMM_WORLD by each level of the machine. Each rank prints "rank R: LEVEL: RANKS", with the ranks of its part. */
#include "mpi_check.h"

static void show(const char *level, MPI_Comm part)
{
    char text[256] = "none";
    int rank = rank_in(MPI_COMM_WORLD), all[64];
    if (part != MPI_COMM_NULL) {
        size_t len = 0;
        OK(MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, part));
        for (int at = 0; at < size_of(part); at++)
            len += snprintf(text + len, sizeof text - len, "%s%d", at > 0 ? "," : "", all[at]);
        OK(MPI_Comm_free(&part));
    }
    SAY("rank %d: %s: %s", rank, level, text);
}

int main(int argc, char **argv)
{
    static const char *const levels[] = {"cluster", "cu",      "host",    "board",   "numanode", "socket",
                                         "l3cache", "l2cache", "l1cache", "core",    "hwthread"};
    MPI_Comm part;
    OK(MPI_Init(&argc, &argv));
    for (size_t at = 0; at < sizeof levels / sizeof *levels; at++) {
        MPI_Info info;
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "mpi_hw_resource_type", levels[at]));
        OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &part));
        OK(MPI_Info_free(&info));
        show(levels[at], part);
    }
#ifdef OMPI_MAJOR_VERSION
    static const struct {
        const char *name;
        int type;
    } types[] = {{"NUMA", OMPI_COMM_TYPE_NUMA}, {"SOCKET", OMPI_COMM_TYPE_SOCKET}, {"CORE", OMPI_COMM_TYPE_CORE}};
    for (size_t at = 0; at < sizeof types / sizeof *types; at++) {
        OK(MPI_Comm_split_type(MPI_COMM_WORLD, types[at].type, 0, MPI_INFO_NULL, &part));
        show(types[at].name, part);
    }
#endif
    OK(MPI_Finalize());
    return 0;
}
