/* Rank 1 is killed, or with an argument it leaves with exit code 7. Its set remains in the list and returns errors when it is used.
 *
 *   hydrant run --mpi-psets --disable-auto-cleanup -n 2 --pset pair ./mpi_pset_dead
 */
#ifdef STOCK
#include "mpi_check.h"
#else
#include "mpi_own.h"
#endif
#include <signal.h>

int main(int argc, char **argv)
{
    MPI_Session session;
    MPI_Info info;
    int before, count, length, last = -1, code;
    char name[MPI_MAX_PSET_NAME_LEN];
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    if (atoi(getenv("PMI_RANK")) == 1) {
        /* Without init and finalize: the exit is all that shows the failure. */
        if (argc > 1)
            _exit(7);
        raise(SIGKILL);
    }
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
    MPI_Group group;
    CHECK(MPI_Group_from_session_pset(session, "pair", &group) == MPI_ERR_PROC_ABORTED);
    /* Also of the sets of an MPI library, which does not know who has died. */
    CHECK(MPI_Session_get_pset_info(session, "mpi://WORLD", &info) == MPI_ERR_PROC_ABORTED);
    CHECK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group) == MPI_ERR_PROC_ABORTED);
    OK(MPI_Session_get_pset_info(session, "mpi://SELF", &info));
    OK(MPI_Info_free(&info));
    SAY("pair is number %d and dead", last);
    /* No other rank is left to finalize with. */
    _exit(0);
}
