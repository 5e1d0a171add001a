/* Checks MPI_Allreduce over all ranks and over two halves of them. */
#include <mpi.h>
#include <stdio.h>

enum { LENGTH = 1000 };

int main(int argc, char **argv)
{
    int rank, size, half_rank, half_size, wrong = 0, all_wrong, sum = 0;
    double mine[LENGTH], sums[LENGTH];
    MPI_Comm half;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < LENGTH; i++)
        mine[i] = rank * i;
    MPI_Allreduce(mine, sums, LENGTH, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < LENGTH; i++)
        wrong += sums[i] != (double)i * size * (size - 1) / 2;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_size);
    MPI_Allreduce(&half_rank, &sum, 1, MPI_INT, MPI_SUM, half);
    wrong += sum != half_size * (half_size - 1) / 2;
    MPI_Comm_free(&half);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("allreduce of %d: %d wrong\n", size, all_wrong);
    MPI_Finalize();
    return all_wrong != 0;
}
