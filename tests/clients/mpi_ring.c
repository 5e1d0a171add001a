/* Passes a token around all ranks; each adds its rank. */
#include <mpi.h>
#include <stdio.h>

enum { ROUNDS = 5 };

int main(int argc, char **argv)
{
    int rank, size;
    long token = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < ROUNDS; round++) {
        if (rank != 0 || round != 0)
            MPI_Recv(&token, 1, MPI_LONG, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token += rank;
        MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("ring of %d: %ld\n", size, token);
        MPI_Finalize();
        return token != (long)ROUNDS * size * (size - 1) / 2;
    }
    MPI_Finalize();
    return 0;
}
