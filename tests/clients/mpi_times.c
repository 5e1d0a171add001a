/* Prints the monotonic clock before MPI_Init and behind MPI_Finalize, in nanoseconds.
 *   barrier N, allreduce N   before and behind so many of these, once all ranks have met
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
    char line[64];
    long long start = now(), end;
    int length, count = argc == 3 ? atoi(argv[2]) : 0, one = 1, sum;

    MPI_Init(&argc, &argv);
    if (count > 0) {
        int is_barrier = strcmp(argv[1], "barrier") == 0;
        MPI_Barrier(MPI_COMM_WORLD);
        start = now();
        for (int i = 0; i < count; i++) {
            if (is_barrier)
                MPI_Barrier(MPI_COMM_WORLD);
            else
                MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        }
        end = now();
    }
    MPI_Finalize();
    if (count == 0)
        end = now();
    /* One write, so that lines of different ranks do not mix. */
    length = snprintf(line, sizeof line, "%lld %lld\n", start, end);
    return write(1, line, length) != length;
}
