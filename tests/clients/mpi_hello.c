/* Prints the rank, the attributes of the job and the MPI library. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, length, appnum_known, universe_known, *appnum, *universe;
    char library[MPI_MAX_LIBRARY_VERSION_STRING], name[32] = "", version[32] = "";

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_library_version(library, &length);
    /* MPICH and Intel MPI write "MPICH Version: 5.0.2", Open MPI writes "Open MPI v5.0.11, package: ...". */
    if (sscanf(library, "Open MPI v%31[^,]", version) == 1)
        strcpy(name, "Open MPI");
    else
        sscanf(library, "%31s Version: %31s", name, version);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &appnum_known);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &universe_known);
    printf("rank %d of %d, program %d, universe %d, %s %s\n", rank, size, appnum_known ? *appnum : -1,
           universe_known ? *universe : -1, name, version);
    MPI_Finalize();
    return 0;
}
