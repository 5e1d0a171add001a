/* MPI-IO: `mpi_io FILE [wait]`. The ranks write blocks of a file together and lines in the order of ranks, and read those of others.
   With `wait` they stay until the input of rank 0 ends. */
#include "mpi_check.h"

#define COUNT 4096
#define LINE 20

int main(int argc, char **argv)
{
    OK(MPI_Init(&argc, &argv));
    int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD), other = (rank + 1) % size;
    static int block[COUNT];
    MPI_File file;
    CHECK(argc > 1);
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    for (int at = 0; at < COUNT; at++)
        block[at] = rank * COUNT + at;
    OK(MPI_File_write_at_all(file, (MPI_Offset)sizeof block * rank, block, COUNT, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_read_at_all(file, (MPI_Offset)sizeof block * other, block, COUNT, MPI_INT, MPI_STATUS_IGNORE));
    for (int at = 0; at < COUNT; at++)
        CHECK(block[at] == other * COUNT + at);
    char line[LINE + 1], wanted[LINE + 1];
    MPI_Offset lines = (MPI_Offset)sizeof block * size;
    snprintf(line, sizeof line, "line of %11d\n", rank);
    OK(MPI_File_seek_shared(file, lines, MPI_SEEK_SET));
    OK(MPI_File_write_ordered(file, line, LINE, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    snprintf(wanted, sizeof wanted, "line of %11d\n", other);
    OK(MPI_File_read_at(file, lines + (MPI_Offset)LINE * other, line, LINE, MPI_CHAR, MPI_STATUS_IGNORE));
    CHECK(memcmp(line, wanted, LINE) == 0);
    OK(MPI_File_close(&file));
    printf("rank %d of %d: io done\n", rank, size);
    fflush(stdout);
    while (argc > 2 && rank == 0 && getchar() != EOF)
        ;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    return 0;
}
