/* Groups of libpmix without MPI, by invitation and with members that die, one scene a sub-command. Each rank that lives checks what
   it gets and prints "rank R: NAME done". */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "pmix_check.h"

/* Numbers of the events that a rank has got, by what they are about. */
static atomic_int registered, invited, declined, complete, failed, ended, lost;

/* Waits until another thread, libpmix's, has set a flag. */
static void await(atomic_int *flag)
{
    while (!atomic_load(flag))
        usleep(1000);
}

static void on_registered(pmix_status_t status, size_t handler, void *place)
{
    (void)handler, (void)place;
    CHECK(status == PMIX_SUCCESS);
    atomic_store(&registered, 1);
}

/* Whether an invited rank comes, and whether it dies of the invitation. */
static int comes = 1, dies = 0;

static void on_event(size_t handler, pmix_status_t code, const pmix_proc_t *source, pmix_info_t infos[], size_t count,
                     pmix_info_t results[], size_t others, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)handler, (void)results, (void)others;
    const char *name = NULL;
    pmix_proc_t *about = NULL;
    for (size_t at = 0; at < count; at++) {
        if (PMIX_CHECK_KEY(&infos[at], PMIX_GROUP_ID))
            name = infos[at].value.data.string;
        if (PMIX_CHECK_KEY(&infos[at], PMIX_EVENT_AFFECTED_PROC))
            about = infos[at].value.data.proc;
    }
    switch (code) {
    case PMIX_GROUP_INVITED:
        CHECK(source->rank == 0 && name != NULL && strcmp(name, "guests") == 0);
        if (dies && me.rank == 2)
            raise(SIGKILL);
        /* The leader gets its own invitation, too. */
        if (me.rank != 0)
            OK(PMIx_Group_join_nb(name, source, comes ? PMIX_GROUP_ACCEPT : PMIX_GROUP_DECLINE, NULL, 0, NULL, NULL));
        atomic_fetch_add(&invited, 1);
        break;
    case PMIX_GROUP_INVITE_DECLINED:
        CHECK(source->rank == 2);
        atomic_fetch_add(&declined, 1);
        break;
    case PMIX_GROUP_CONSTRUCT_COMPLETE:
        CHECK(source->rank == 0);
        atomic_fetch_add(&complete, 1);
        break;
    case PMIX_PROC_TERMINATED:
        CHECK(about != NULL && about->rank == 2);
        atomic_fetch_add(&failed, 1);
        break;
    case PMIX_ERR_PROC_TERM_WO_SYNC:
        CHECK(about != NULL && about->rank == 0);
        atomic_fetch_add(&ended, 1);
        break;
    case PMIX_GROUP_MEMBER_FAILED:
        CHECK(about != NULL && about->rank == 2 && name != NULL && strcmp(name, "survivors") == 0);
        atomic_fetch_add(&lost, 1);
        break;
    default:
        CHECK(!"an event that nobody has registered for");
    }
    if (done != NULL)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void listen_for(pmix_status_t code)
{
    atomic_store(&registered, 0);
    PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, on_registered, NULL);
    await(&registered);
}

static void on_invited(pmix_status_t status, pmix_info_t *infos, size_t count, void *data,
                       pmix_release_cbfunc_t release, void *released)
{
    (void)status, (void)infos, (void)count, (void)data, (void)release, (void)released;
}

/* Rank 0 invites all ranks, which come. */
static void invites(void)
{
    listen_for(PMIX_GROUP_INVITED);
    listen_for(PMIX_GROUP_CONSTRUCT_COMPLETE);
    fence();
    if (me.rank == 0) {
        pmix_proc_t all[64];
        pmix_info_t *results = NULL;
        size_t count = 0;
        CHECK(size <= 64);
        for (uint32_t rank = 0; rank < size; rank++)
            all[rank] = rank_of(rank);
        OK(PMIx_Group_invite("guests", all, size, NULL, 0, &results, &count));
    }
    await(&complete);
    CHECK(atomic_load(&invited) == 1);
    fence();
}

/* Rank 2 declines. */
static void declines(void)
{
    comes = me.rank != 2;
    listen_for(PMIX_GROUP_INVITED);
    if (me.rank == 0)
        listen_for(PMIX_GROUP_INVITE_DECLINED);
    fence();
    pmix_proc_t all[] = {rank_of(0), rank_of(1), rank_of(2)};
    if (me.rank == 0) {
        OK(PMIx_Group_invite_nb("guests", all, 3, NULL, 0, on_invited, NULL));
        await(&declined);
    }
    await(&invited);
    fence();
    CHECK(atomic_load(&complete) == 0);
}

/* Rank 2 dies of the invitation. The leader is told. */
static void guest_dies(void)
{
    dies = 1;
    listen_for(PMIX_GROUP_INVITED);
    if (me.rank == 0)
        listen_for(PMIX_PROC_TERMINATED);
    fence();
    if (me.rank == 0) {
        pmix_proc_t all[] = {rank_of(0), rank_of(1), rank_of(2)};
        for (int at = 1; at < 3; at++) {
            pmix_info_t infos[2];
            PMIX_INFO_LOAD(&infos[0], PMIX_EVENT_CUSTOM_RANGE, &all[at], PMIX_PROC);
            PMIX_INFO_LOAD(&infos[1], PMIX_GROUP_ID, "guests", PMIX_STRING);
            OK(PMIx_Notify_event(PMIX_GROUP_INVITED, &me, PMIX_RANGE_CUSTOM, infos, 2, NULL, NULL));
        }
        await(&failed);
    } else {
        await(&invited);
    }
    fence();
}

/* Rank 0 dies once it has invited the others. They are told. */
static void leader_dies(void)
{
    listen_for(PMIX_GROUP_INVITED);
    if (me.rank != 0)
        listen_for(PMIX_ERR_PROC_TERM_WO_SYNC);
    fence();
    if (me.rank == 0) {
        pmix_proc_t all[] = {rank_of(0), rank_of(1), rank_of(2)};
        OK(PMIx_Group_invite_nb("guests", all, 3, NULL, 0, on_invited, NULL));
        raise(SIGKILL);
    }
    await(&invited);
    await(&ended);
    fence();
}

/* Rank 2 dies before it comes to a group. Those who live form it, and learn of the loss, since one of them has asked for it. */
static void survives(void)
{
    pmix_proc_t all[] = {rank_of(0), rank_of(1), rank_of(2)};
    pmix_info_t info, *results;
    size_t count, members = 0;
    bool yes = true;
    listen_for(PMIX_GROUP_MEMBER_FAILED);
    fence();
    if (me.rank == 2)
        raise(SIGKILL);
    PMIX_INFO_LOAD(&info, PMIX_GROUP_FT_COLLECTIVE, &yes, PMIX_BOOL);
    OK(PMIx_Group_construct("survivors", all, 3, &info, me.rank == 1, &results, &count));
    for (size_t at = 0; at < count; at++)
        if (PMIX_CHECK_KEY(&results[at], PMIX_GROUP_MEMBERSHIP))
            members = results[at].value.data.darray->size;
    CHECK(members == 0 || members == 2);
    await(&lost);
    RETURNS(PMIX_GROUP_CONSTRUCT_ABORT, PMIx_Group_construct("all", all, 3, NULL, 0, &results, &count));
    fence();
}

/* Each rank knows itself, and how many there are. */
static void leads(void)
{
    size_t leaders = size, count, context = 0;
    pmix_info_t infos[2], *results;
    bool yes = true;
    PMIX_INFO_LOAD(&infos[0], "pmix.grp.btstrp", &leaders, PMIX_SIZE);
    PMIX_INFO_LOAD(&infos[1], PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    for (int times = 0; times < 2; times++) {
        OK(PMIx_Group_construct("leaders", &me, 1, infos, 2, &results, &count));
        for (size_t at = 0; at < count; at++)
            if (PMIX_CHECK_KEY(&results[at], PMIX_GROUP_CONTEXT_ID))
                context = results[at].value.data.size;
        CHECK(context > 0);
        fence();
    }
}

/* What members have put without a commit is found once they have formed a group, as libpmix 6 sends it. */
static void endpoints(void)
{
    pmix_proc_t all = rank_of(PMIX_RANK_WILDCARD);
    pmix_info_t info, given[3], *results;
    pmix_scope_t scope = PMIX_REMOTE;
    pmix_data_array_t array = {.type = PMIX_INFO, .size = 3, .array = given};
    size_t count;
    uint32_t number = 40 + me.rank;
    bool yes = true;
    PMIX_INFO_LOAD(&given[0], PMIX_PROCID, &me, PMIX_PROC);
    PMIX_INFO_LOAD(&given[1], PMIX_DATA_SCOPE, &scope, PMIX_SCOPE);
    PMIX_INFO_LOAD(&given[2], "endpoint", &number, PMIX_UINT32);
    PMIX_INFO_LOAD(&info, PMIX_PROC_INFO_ARRAY, &array, PMIX_DATA_ARRAY);
    OK(PMIx_Group_construct("ends", &all, 1, &info, 1, &results, &count));
    PMIX_INFO_LOAD(&info, PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    for (uint32_t rank = 0; rank < size; rank++) {
        pmix_proc_t other = rank_of(rank);
        pmix_value_t *value;
        if (rank != me.rank) {
            OK(PMIx_Get(&other, "endpoint", &info, 1, &value));
            CHECK(value->type == PMIX_UINT32 && value->data.uint32 == 40 + rank);
            PMIX_VALUE_RELEASE(value);
        }
    }
    fence();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenes[] = {
        {"invites", invites}, {"declines", declines}, {"guest-dies", guest_dies}, {"leader-dies", leader_dies},
        {"survives", survives}, {"leads", leads}, {"endpoints", endpoints},
    };
    CHECK(argc == 2);
    join();
    for (size_t at = 0; at < sizeof scenes / sizeof *scenes; at++)
        if (strcmp(argv[1], scenes[at].name) == 0) {
            scenes[at].run();
            SAY("rank %u: %s done", me.rank, argv[1]);
        }
    OK(PMIx_Finalize(NULL, 0));
    return 0;
}
