/* Entries of MPI_INFO_ENV, as Open MPI finds them without the arguments of main. */
#include "mpi_check.h"

int main(void)
{
    static const char *keys[] = {"command", "argv", "maxprocs", "soft", "wdir", "ompi_num_apps", "ompi_first_rank", "ompi_np"};
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (unsigned at = 0; at < sizeof keys / sizeof *keys; at++) {
        char value[MPI_MAX_INFO_VAL + 1];
        int found;
        MPI_Info_get(MPI_INFO_ENV, keys[at], MPI_MAX_INFO_VAL, value, &found);
        SAY("rank %d: %s=%s", rank, keys[at], found ? value : "(none)");
    }
    MPI_Finalize();
    return 0;
}
