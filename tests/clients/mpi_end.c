/* Rank 1 ends the job, while the others wait for it.
 *
 *   abort CODE   by MPI_Abort
 *   kill         by a signal
 *
 * With leave, all ranks finalize and leave by _exit.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "mpi_check.h"

int main(int argc, char **argv)
{
    int rank;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    int leave = argc > 1 && strcmp(argv[1], "leave") == 0;
    if (rank == 1 && !leave) {
        if (argc > 2)
            MPI_Abort(MPI_COMM_WORLD, atoi(argv[2]));
        raise(SIGKILL);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    if (leave)
        _exit(0);
    return 0;
}
