/* Rank 0 publishes the name of its port and accepts rank 1 there, which sends it a number. */
#include "mpi_check.h"

int main(int argc, char **argv)
{
    int rank, number = 41;
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm other;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (rank == 0) {
        OK(MPI_Open_port(MPI_INFO_NULL, port));
        OK(MPI_Publish_name("hydrant-port", MPI_INFO_NULL, port));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other));
        number = 0;
        OK(MPI_Recv(&number, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE));
        printf("received %d\n", number);
        OK(MPI_Unpublish_name("hydrant-port", MPI_INFO_NULL, port));
        OK(MPI_Close_port(port));
    } else {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Lookup_name("hydrant-port", MPI_INFO_NULL, port));
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other));
        OK(MPI_Send(&number, 1, MPI_INT, 0, 0, other));
    }
    OK(MPI_Comm_disconnect(&other));
    OK(MPI_Finalize());
    return 0;
}
