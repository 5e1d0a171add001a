/* Rank 1 is killed. Its set remains in the list and returns errors when it is used.
 *
 *   hydrant run --mpi-psets --disable-auto-cleanup -n 2 --pset pair ./mpi_pset_dead
 */
#ifdef STOCK
#include "mpi_check.h"
#else
#include "mpi_own.h"
#endif
#include <signal.h>

int main(void)
{
    MPI_Session session;
    MPI_Info info;
    int before, count, length, last = -1, code;
    char name[MPI_MAX_PSET_NAME_LEN];
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    if (atoi(getenv("PMI_RANK")) == 1)
        raise(SIGKILL);
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &before));
    while ((code = MPI_Session_get_pset_info(session, "pair", &info)) == MPI_SUCCESS)
        OK(MPI_Info_free(&info));
    CHECK(code == MPI_ERR_PROC_ABORTED);
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    CHECK(count == before);
    for (int i = 0; i < count; i++) {
        length = sizeof name;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
        if (!strcmp(name, "app://pair"))
            last = i;
    }
    CHECK(last == count - 1);
#ifdef STOCK
    MPI_Group group;
    CHECK(MPI_Group_from_session_pset(session, "pair", &group) == MPI_ERR_PROC_ABORTED);
#else
    CHECK(MPI_Session_get_pset_info(session, "mpi://WORLD", &info) == MPI_ERR_PROC_ABORTED);
#endif
    OK(MPI_Session_get_pset_info(session, "mpi://SELF", &info));
    OK(MPI_Info_free(&info));
    SAY("pair is number %d and dead", last);
    /* No other rank is left to finalize with. */
    _exit(0);
}
