/* Tool of PMIx that runs jobs one after another, as PRRTE's prun does: `pmix_prun URI JOBS MAP PROCESSES PROGRAM [ARGUMENT]...`
   (MAP: -, ppr:N:node). For each job it prints the monotonic clock before the spawn and behind the end, in nanoseconds. */
#define _GNU_SOURCE
#include <pmix_tool.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "pmix_check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* The job that ended last. */
static pmix_nspace_t ended;

static void on_end(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t ninfo,
                   pmix_info_t results[], size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)handler, (void)code, (void)source, (void)results, (void)nresults;
    pthread_mutex_lock(&lock);
    for (size_t at = 0; at < ninfo; at++)
        if (PMIX_CHECK_KEY(&info[at], PMIX_EVENT_AFFECTED_PROC))
            PMIX_LOAD_NSPACE(ended, info[at].value.data.proc->nspace);
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Runs a job to its end. */
static void run(char *map, int processes, char **program)
{
    pmix_app_t app;
    pmix_info_t infos[3];
    pmix_nspace_t job;
    bool yes = true;
    size_t count = 0;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup(program[0]);
    app.argv = program;
    app.maxprocs = processes;
    PMIX_INFO_LOAD(&infos[count++], PMIX_NOTIFY_COMPLETION, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[count++], PMIX_BINDTO, "none", PMIX_STRING);
    if (strcmp(map, "-") != 0)
        PMIX_INFO_LOAD(&infos[count++], PMIX_MAPBY, map, PMIX_STRING);
    OK(PMIx_Spawn(infos, count, &app, 1, job));
    pthread_mutex_lock(&lock);
    while (strcmp(ended, job) != 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    pmix_info_t info;
    pmix_status_t end = PMIX_EVENT_JOB_END;
    CHECK(argc > 5);
    PMIX_INFO_LOAD(&info, PMIX_SERVER_URI, argv[1], PMIX_STRING);
    OK(PMIx_tool_init(&me, &info, 1));
    RETURNS(0, PMIx_Register_event_handler(&end, 1, NULL, 0, on_end, NULL, NULL) < 0);
    for (int jobs = atoi(argv[2]); jobs > 0; jobs--) {
        long long start = now();
        run(argv[3], atoi(argv[4]), argv + 5);
        printf("%lld %lld\n", start, now());
        fflush(NULL);
    }
    PMIx_tool_finalize();
    return 0;
}
