/* Prints the host of each rank and the number of ranks that share its memory.
 *
 *   mpi_nodes                  print only
 *   mpi_nodes spawn HOST N     spawn N children on that host, which print the same
 */
#include "mpi_check.h"

static void say_place(const char *who)
{
    char host[MPI_MAX_PROCESSOR_NAME];
    int length, rank = rank_in(MPI_COMM_WORLD), first = rank;
    MPI_Comm node;
    OK(MPI_Get_processor_name(host, &length));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node));
    OK(MPI_Bcast(&first, 1, MPI_INT, 0, node));
    SAY("%s %d of %d on %s: %d of %d with %d", who, rank, size_of(MPI_COMM_WORLD), host, rank_in(node),
        size_of(node), first);
    OK(MPI_Comm_free(&node));
}

/* A sum over the ranks of both sides, which uses all links between them. */
static void count(MPI_Comm other, int high)
{
    MPI_Comm all;
    int one = 1, sum = 0;
    OK(MPI_Intercomm_merge(other, high, &all));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all));
    CHECK(sum == size_of(all));
    OK(MPI_Comm_free(&all));
    OK(MPI_Comm_disconnect(&other));
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_get_parent(&parent));
    say_place(parent == MPI_COMM_NULL ? "rank" : "child");
    if (parent != MPI_COMM_NULL) {
        count(parent, 1);
    } else if (argc == 4 && !strcmp(argv[1], "spawn")) {
        MPI_Info info;
        MPI_Comm children;
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "host", argv[2]));
        OK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, atoi(argv[3]), info, 0, MPI_COMM_WORLD, &children,
                          MPI_ERRCODES_IGNORE));
        OK(MPI_Info_free(&info));
        count(children, 0);
    } else {
        CHECK(argc == 1);
    }
    OK(MPI_Finalize());
    return 0;
}
