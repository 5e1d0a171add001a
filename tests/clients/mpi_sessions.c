/* Sessions of several threads at once, and new ones after all were finalized.
 *
 *   mpi_sessions THREADS ROUNDS [FOLDER]
 *
 * With an empty FOLDER the ranks wait for each other between rounds. MPICH 5.0.2 sometimes hangs, with any launcher, if a
 * rank opens a session while another rank still closes its last one.
 */
#include "mpi_check.h"
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

/* Prints the sets of a session. Names of the standard are printed in its case. */
static void say_psets(MPI_Session session)
{
    int count;
    char all[2048] = "";
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    for (int i = 0; i < count; i++) {
        char name[MPI_MAX_PSET_NAME_LEN];
        int length = sizeof name;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
        strcat(all, " ");
        strcat(all, name);
    }
    for (char *c = all; *c; c++)
        *c = tolower(*c);
    SAY("psets:%s", all);
}

/* Size of a communicator of a process set. */
static int sum_over(MPI_Session session, const char *pset, const char *tag)
{
    MPI_Group group;
    MPI_Comm comm;
    int one = 1, sum = 0, size, rank;
    OK(MPI_Group_from_session_pset(session, pset, &group));
    OK(MPI_Group_size(group, &size));
    OK(MPI_Group_rank(group, &rank));
    CHECK(rank >= 0 && rank < size);
    OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size);
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_free(&comm));
    return size;
}

static MPI_Session sessions[16];

static void *thread(void *number)
{
    MPI_Info info;
    int i = *(int *)number;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE"));
    OK(MPI_Session_init(info, MPI_ERRORS_RETURN, &sessions[i]));
    OK(MPI_Info_free(&info));
    if (i == 0)
        say_psets(sessions[i]);
    return NULL;
}

/* Waits until all ranks have finalized a round. Each makes a file in the folder. */
static void meet(const char *folder, int round, int size)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%d.%s", folder, round, getenv("PMI_RANK"));
    int file = open(name, O_CREAT | O_WRONLY, 0600);
    CHECK(file >= 0);
    close(file);
    for (int rank = 0; rank < size; rank++) {
        snprintf(name, sizeof name, "%s/%d.%d", folder, round, rank);
        while (access(name, F_OK) != 0)
            usleep(1000);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[16];
    int numbers[16];
    CHECK(argc == 3 || argc == 4);
    int count = atoi(argv[1]), rounds = atoi(argv[2]);
    CHECK(count <= 16);
    for (int round = 0; round < rounds; round++) {
        int size = 0;
        for (int i = 0; i < count; i++) {
            numbers[i] = i;
            CHECK(pthread_create(&threads[i], NULL, thread, &numbers[i]) == 0);
        }
        for (int i = 0; i < count; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        /* One after the other: MPICH 5.0.2 sometimes hangs if threads create communicators from groups at once, with any
         * launcher. */
        for (int i = 0; i < count; i++) {
            char tag[64];
            snprintf(tag, sizeof tag, "org.example.world.%d", i);
            size = sum_over(sessions[i], "mpi://WORLD", tag);
            snprintf(tag, sizeof tag, "org.example.self.%d", i);
            CHECK(sum_over(sessions[i], "mpi://SELF", tag) == 1);
        }
        for (int i = 0; i < count; i++)
            OK(MPI_Session_finalize(&sessions[i]));
        SAY("round %d of %d threads: size %d", round, count, size);
        if (argc == 4)
            meet(argv[3], round, size);
    }
    return 0;
}
