/* Prints constants and sizes of the standard ABI from the header in use. */
#ifdef STOCK
#include <mpi.h>
#else
#include "hydrant_mpi.h"
#endif
#include <stdio.h>

#define SHOW(name) printf("%s %lld\n", #name, (long long)(name))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))

static int takes(MPI_Session_errhandler_function *function)
{
    return function != NULL;
}

int main(void)
{
    SHOW(MPI_VERSION);
    SHOW(MPI_SUBVERSION);
    SIZE(MPI_Session);
    SIZE(MPI_Group);
    SIZE(MPI_Info);
    SIZE(MPI_Errhandler);
    SHOW(MPI_GROUP_NULL);
    SHOW(MPI_GROUP_EMPTY);
    SHOW(MPI_IDENT);
    SHOW(MPI_SIMILAR);
    SHOW(MPI_UNEQUAL);
    SHOW(MPI_PROC_NULL);
    SHOW(MPI_UNDEFINED);
    SHOW(MPI_SESSION_NULL);
    SHOW(MPI_INFO_NULL);
    SHOW(MPI_INFO_ENV);
    SHOW(MPI_ERRHANDLER_NULL);
    SHOW(MPI_ERRORS_ARE_FATAL);
    SHOW(MPI_ERRORS_ABORT);
    SHOW(MPI_ERRORS_RETURN);
    SHOW(MPI_SUCCESS);
    SHOW(MPI_ERR_RANK);
    SHOW(MPI_ERR_GROUP);
    SHOW(MPI_ERR_ARG);
    SHOW(MPI_ERR_OTHER);
    SHOW(MPI_ERR_INFO_KEY);
    SHOW(MPI_ERR_INFO_NOKEY);
    SHOW(MPI_ERR_INFO_VALUE);
    SHOW(MPI_ERR_INFO);
    SHOW(MPI_ERR_NO_MEM);
    SHOW(MPI_ERR_UNSUPPORTED_OPERATION);
    SHOW(MPI_ERR_PROC_ABORTED);
    SHOW(MPI_ERR_SESSION);
    SHOW(MPI_ERR_ERRHANDLER);
    SHOW(MPI_MAX_INFO_KEY);
    SHOW(MPI_MAX_INFO_VAL);
    SHOW(MPI_MAX_PSET_NAME_LEN);
    return takes(NULL);
}
