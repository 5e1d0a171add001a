/* Fault tolerance: all sum up again and again. When some have died, the others revoke the communicator, shrink it, and go on; with
   `refill` they spawn as many as are lost first, and go on for 100 rounds at most. */
#include <signal.h>

#include "mpi_check.h"
#include <mpi-ext.h>

/* Sums until the communicator has no more rounds to go. Returns whether all of its processes are left. */
static int sum_up(MPI_Comm all, int *rounds)
{
    while (*rounds > 0) {
        int one = 1, sum = 0, good;
        good = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all) == MPI_SUCCESS && sum == size_of(all);
        /* Others may wait for this process, and have not heard of a death. */
        if (!good)
            MPIX_Comm_revoke(all);
        /* Its result is the same for all. */
        if (MPIX_Comm_agree(all, &good) != MPI_SUCCESS || !good)
            return 0;
        --*rounds;
    }
    return 1;
}

/* Tells processes that were spawned what the others know. */
static void share(MPI_Comm all, int *rounds, int *size)
{
    int known[2] = { *rounds, *size };
    OK(MPI_Bcast(known, 2, MPI_INT, 0, all));
    *rounds = known[0], *size = known[1];
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 0, refill = argc > 2, size = 0, losses = 0;
    MPI_Comm all, rest, parent, both;
    /* A connection to a process that has died is written to. */
    signal(SIGPIPE, SIG_IGN);
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_get_parent(&parent));
    if (parent == MPI_COMM_NULL) {
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &all));
        size = size_of(all);
        OK(MPI_Barrier(all));
        SAY("rank %d is up", rank_in(MPI_COMM_WORLD));
    } else {
        OK(MPI_Intercomm_merge(parent, 1, &all));
        share(all, &rounds, &size);
    }
    for (;;) {
        OK(MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN));
        if (sum_up(all, &rounds))
            break;
        MPIX_Comm_revoke(all);
        while (MPIX_Comm_shrink(all, &rest) != MPI_SUCCESS)
            ;
        MPI_Comm_free(&all);
        all = rest;
        losses++;
        if (refill) {
            char *args[] = { "0", "refill", NULL };
            OK(MPI_Comm_spawn(argv[0], args, size - size_of(rest), MPI_INFO_NULL, 0, rest, &both,
                              MPI_ERRCODES_IGNORE));
            OK(MPI_Intercomm_merge(both, 0, &all));
            rounds = rounds < 100 ? rounds : 100;
            share(all, &rounds, &size);
        }
    }
    SAY("rank %d: %d are left after %d losses", rank_in(MPI_COMM_WORLD), size_of(all), losses);
    MPI_Comm_free(&all);
    MPI_Finalize();
    return 0;
}
