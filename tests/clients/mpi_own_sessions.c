/* Sessions of libhydrant_mpi alone: hints, concurrent sessions, error handlers, use after finalize.
 *
 *   mpi_own_sessions          all calls that return
 *   mpi_own_sessions fatal    an error under MPI_ERRORS_ARE_FATAL
 *   mpi_own_sessions abort    the same under MPI_ERRORS_ABORT
 */
// Test: libraries `mpi::alone::sessions_hints_and_error_handlers`
#include "mpi_own.h"
#include <pthread.h>

static int calls, last_code;
static MPI_Session last_session;

static void handler(MPI_Session *session, int *code, ...)
{
    calls++;
    last_session = *session;
    last_code = *code;
    /* Handlers may call MPI. */
    int count;
    if (*session != MPI_SESSION_NULL)
        OK(MPI_Session_get_num_psets(*session, MPI_INFO_NULL, &count));
}

static void hint(MPI_Session session, const char *key, const char *wanted)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1];
    int found, length = sizeof value;
    OK(MPI_Session_get_info(session, &info));
    OK(MPI_Info_get_string(info, key, &length, value, &found));
    CHECK(found && !strcmp(value, wanted));
    OK(MPI_Info_free(&info));
}

// Shows: MPI Info, Objects | functions with an info argument | ignore keys that they do not know | done
// Also: libraries `pmi2::peers::spawns_under_hydrant`
// Shows: MPI Info, Objects | an info argument | is read when it is passed; later changes have no effect | done:
// sessions copy their hints
// Shows: MPI Sessions, Creation and end | `MPI_Session_init` `info` | hints | done: also `MPI_INFO_NULL`
// Shows: MPI Sessions, Creation and end | `thread_level` | the level of thread support | done: any; every level is
// supported
// Shows: MPI Sessions, Creation and end | `thread_level` | the default should not be `MPI_THREAD_SINGLE` | done:
// `MPI_THREAD_MULTIPLE`
// Shows: MPI Sessions, Creation and end | `mpi_memory_alloc_kinds` | requested kinds of memory | done: kinds `mpi`
// and `system`; `-memory-alloc-kinds` passes a request to MPICH
// Also: libraries `interop::mpich::mpich5_memory_alloc_kinds`
// Shows: MPI Sessions, Process sets | `MPI_Session_get_info` | all hints in effect, in a new object | done
static void hints(void)
{
    MPI_Session plain, asked;
    MPI_Info info;
    int found, length;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_SERIALIZED"));
    OK(MPI_Info_set(info, "strict_finalize", " true "));
    OK(MPI_Info_set(info, "no_such_key", "ignored"));
    OK(MPI_Info_set(info, "mpi_memory_alloc_kinds", "cuda:device, mpi:win_allocate , system"));
    OK(MPI_Session_init(info, MPI_ERRORS_RETURN, &asked));
    OK(MPI_Info_free(&info));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &plain));
    CHECK(plain != asked);
    hint(plain, "thread_level", "MPI_THREAD_MULTIPLE");
    hint(plain, "strict_finalize", "false");
    hint(plain, "mpi_memory_alloc_kinds", "mpi,system");
    hint(asked, "thread_level", "MPI_THREAD_SERIALIZED");
    hint(asked, "strict_finalize", "true");
    hint(asked, "mpi_memory_alloc_kinds", "mpi,system,mpi:win_allocate");
    OK(MPI_Session_get_info(asked, &info));
    /* In another order than they were initialized. */
    OK(MPI_Session_finalize(&asked));
    hint(plain, "strict_finalize", "false");
    OK(MPI_Session_finalize(&plain));
    /* An info object outlives its session. It has no key that the library does not know. */
    OK(MPI_Info_get_valuelen(info, "strict_finalize", &length, &found));
    CHECK(found && length == 4);
    OK(MPI_Info_get_valuelen(info, "no_such_key", &length, &found));
    CHECK(!found);
    OK(MPI_Info_free(&info));
}

// Shows: MPI Sessions, Creation and end | `MPI_Session_init` `errhandler` | is called for errors of this call | done
// Shows: MPI Sessions, Creation and end | info objects, error handlers | exist independently of sessions | done
// Shows: MPI Sessions, Process sets | `MPI_Session_get_num_psets`, `_get_nth_pset` `info` | hints | free: no key is
// defined; an invalid handle is an error
static void handlers(void)
{
    MPI_Session session, other;
    MPI_Errhandler mine, got;
    MPI_Info info;
    int count;
    OK(MPI_Session_create_errhandler(handler, &mine));
    OK(MPI_Session_init(MPI_INFO_NULL, mine, &session));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &other));
    OK(MPI_Session_get_errhandler(session, &got));
    CHECK(got == mine);
    OK(MPI_Errhandler_free(&got));
    CHECK(got == MPI_ERRHANDLER_NULL);
    /* A freed handler remains valid as long as a session uses it. */
    OK(MPI_Errhandler_free(&mine));
    CHECK(MPI_Session_get_pset_info(session, "no://such", &info) == MPI_ERR_ARG);
    CHECK(calls == 1 && last_session == session && last_code == MPI_ERR_ARG);
    CHECK(MPI_Session_get_pset_info(other, "no://such", &info) == MPI_ERR_ARG && calls == 1);
    OK(MPI_Session_call_errhandler(session, 12345));
    CHECK(calls == 2 && last_code == 12345);
    OK(MPI_Session_get_errhandler(session, &got));
    OK(MPI_Session_set_errhandler(other, got));
    OK(MPI_Errhandler_free(&got));
    CHECK(MPI_Session_get_num_psets(other, MPI_INFO_NULL, NULL) == MPI_ERR_ARG);
    CHECK(calls == 3 && last_session == other);
    OK(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN));
    CHECK(MPI_Session_get_num_psets(session, (MPI_Info)0x1234, &count) == MPI_ERR_INFO && calls == 3);
    CHECK(MPI_Session_set_errhandler(session, MPI_ERRHANDLER_NULL) == MPI_ERR_ERRHANDLER);
    CHECK(MPI_Session_set_errhandler(session, (MPI_Errhandler)session) == MPI_ERR_ERRHANDLER);
    /* A freed handler that no session uses. */
    OK(MPI_Session_create_errhandler(handler, &mine));
    got = mine;
    OK(MPI_Errhandler_free(&mine));
    CHECK(MPI_Session_set_errhandler(session, got) == MPI_ERR_ERRHANDLER);
    OK(MPI_Session_finalize(&session));
    OK(MPI_Session_finalize(&other));
    /* The handler passed to init is called for errors of init. */
    OK(MPI_Session_create_errhandler(handler, &mine));
    CHECK(MPI_Session_init((MPI_Info)0x1234, mine, &session) == MPI_ERR_INFO);
    CHECK(calls == 4 && last_session == MPI_SESSION_NULL && last_code == MPI_ERR_INFO);
    CHECK(MPI_Session_init(MPI_INFO_NULL, mine, NULL) == MPI_ERR_ARG && calls == 5);
    OK(MPI_Errhandler_free(&mine));
}

// Shows: MPI Sessions, Creation and end | `MPI_Session_finalize` | sets the handle to `MPI_SESSION_NULL` | done
// Shows: MPI Sessions, Creation and end | after finalize | no call with this session | done: `MPI_ERR_SESSION`
static void after_the_end(void)
{
    MPI_Session session, copy;
    MPI_Errhandler got;
    MPI_Info info;
    int count, length = 0;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session));
    copy = session;
    OK(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL);
    for (int i = 0; i < 2; i++) {
        MPI_Session gone = i ? copy : MPI_SESSION_NULL;
        CHECK(MPI_Session_get_num_psets(gone, MPI_INFO_NULL, &count) == MPI_ERR_SESSION);
        CHECK(MPI_Session_get_nth_pset(gone, MPI_INFO_NULL, 0, &length, NULL) == MPI_ERR_SESSION);
        CHECK(MPI_Session_get_pset_info(gone, "mpi://SELF", &info) == MPI_ERR_SESSION);
        CHECK(MPI_Session_get_info(gone, &info) == MPI_ERR_SESSION);
        CHECK(MPI_Session_get_errhandler(gone, &got) == MPI_ERR_SESSION);
        CHECK(MPI_Session_set_errhandler(gone, MPI_ERRORS_RETURN) == MPI_ERR_SESSION);
        CHECK(MPI_Session_call_errhandler(gone, 1) == MPI_ERR_SESSION);
        CHECK(hydrant_pset_define(gone, "x", 1, (int[]){0}) == MPI_ERR_SESSION);
        CHECK(MPI_Session_finalize(&gone) == MPI_ERR_SESSION);
    }
    /* A new session has a different handle. */
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    CHECK(session != copy);
    CHECK(MPI_Session_get_info(copy, &info) == MPI_ERR_SESSION);
    OK(MPI_Session_finalize(&session));
}

static void *thread(void *nothing)
{
    for (int i = 0; i < 50; i++) {
        MPI_Session session;
        MPI_Info info;
        int count;
        OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
        OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
        CHECK(count >= 2);
        OK(MPI_Session_get_pset_info(session, "mpi://SELF", &info));
        OK(MPI_Info_free(&info));
        OK(MPI_Session_finalize(&session));
    }
    return nothing;
}

// Shows: MPI Sessions, Creation and end | `MPI_Session_init` `session` | a new session | done: any number, also from
// several threads
// Also: libraries `interop::dynamic::sessions_from_several_threads`
static void threads(void)
{
    pthread_t all[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&all[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        MPI_Session session;
        MPI_Info info;
        MPI_Errhandler end = !strcmp(argv[1], "fatal") ? MPI_ERRORS_ARE_FATAL : MPI_ERRORS_ABORT;
        OK(MPI_Session_init(MPI_INFO_NULL, end, &session));
        MPI_Session_get_pset_info(session, "no://such", &info);
        SAY("came back");
        return 0;
    }
    hints();
    handlers();
    after_the_end();
    threads();
    SAY("sessions are well");
    return 0;
}
