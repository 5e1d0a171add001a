/* Fault tolerance of Open MPI: rank 1 is killed, or with an argument whoever the test kills, and the others revoke the
   communicator, shrink it and go on. */
#include <signal.h>

#include "mpi_check.h"
#include <mpi-ext.h>

int main(int argc, char **argv)
{
    int rank, agreed = 1, sum = 0, one = 1;
    MPI_Comm rest;
    /* Open MPI writes to connections of processes that have died. */
    signal(SIGPIPE, SIG_IGN);
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    /* Open MPI 5.0.11 crashes when another rank's revoke arrives in MPI_Init. Rank 1 may die before its last message of the barrier
       is sent: then the barrier fails at others, where all have left MPI_Init too. */
    int met = MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1) {
        OK(met);
        SAY("rank %d is up", rank);
    } else if (rank == 1) {
        raise(SIGKILL);
    }
    /* The first may succeed for some ranks. */
    while (MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS)
        ;
    OK(MPIX_Comm_revoke(MPI_COMM_WORLD));
    OK(MPIX_Comm_shrink(MPI_COMM_WORLD, &rest));
    OK(MPIX_Comm_agree(rest, &agreed));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, rest));
    SAY("rank %d: %d of %d are left, agreed %d", rank, sum, size_of(MPI_COMM_WORLD), agreed);
    OK(MPI_Comm_free(&rest));
    OK(MPI_Finalize());
    return 0;
}
