/* Passes an info object to the MPI library, with the functions of MPI 3. */
#include "mpi_check.h"

int main(int argc, char **argv)
{
    MPI_Info info, used;
    MPI_Comm comm;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "no-such-key", "value"));
    OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_get_info(comm, &used));
    OK(MPI_Info_free(&used));
    SAY("rank %d: info is well", rank_in(comm));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Finalize());
    return 0;
}
