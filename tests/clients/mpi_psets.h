/* Process sets with libhydrant_mpi alone, or (STOCK) with an MPI library after it. */
#ifdef STOCK
#include "mpi_check.h"
#include "hydrant_mpi.h"
#else
#include "mpi_own.h"
#endif

static int size_of_pset(MPI_Session session, const char *name)
{
    MPI_Info info;
    char value[32];
    int found, length = sizeof value;
    OK(MPI_Session_get_pset_info(session, name, &info));
    OK(MPI_Info_get_string(info, "mpi_size", &length, value, &found));
    CHECK(found);
    OK(MPI_Info_free(&info));
    return atoi(value);
}
