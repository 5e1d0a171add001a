/* Coupled model: each program uses the communicator of its own process set.
 *
 *   hydrant run --mpi-psets -n 2 --pset ocean ./model ocean : -n 3 --pset atmos ./model atmos
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, size, sum, one = 1;
    if (argc != 2)
        return 2;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, argv[1], &group);
    MPI_Comm_create_from_group(group, argv[1], MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    printf("%s: rank %d of %d, %d counted\n", argv[1], rank, size, sum);
    MPI_Comm_disconnect(&comm);
    MPI_Session_finalize(&session);
    return 0;
}
