/* Between a library and the server: passes on the bytes of the inherited socket and counts those of the library. For programs
 * that define CHECK. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_long said;

/* Passes on what either end says until one has said all. */
static void *pass_on(void *ends)
{
    struct pollfd polls[2] = {{.fd = ((int *)ends)[0], .events = POLLIN}, {.fd = ((int *)ends)[1], .events = POLLIN}};
    for (;;) {
        CHECK(poll(polls, 2, -1) > 0);
        for (int from = 0; from < 2; from++) {
            char bytes[4096];
            ssize_t length = polls[from].revents ? read(polls[from].fd, bytes, sizeof bytes) : -1;
            if (length == 0)
                return NULL;
            if (length < 0)
                continue;
            if (from == 0)
                said += length;
            CHECK(write(polls[!from].fd, bytes, length) == length);
        }
    }
}

static pthread_t between(void)
{
    static int ends[2];
    int pair[2];
    char number[16];
    pthread_t thread;
    CHECK(getenv("PMI_FD") && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    ends[0] = pair[0], ends[1] = atoi(getenv("PMI_FD"));
    snprintf(number, sizeof number, "%d", pair[1]);
    CHECK(setenv("PMI_FD", number, 1) == 0 && pthread_create(&thread, NULL, pass_on, ends) == 0);
    return thread;
}

/* Whether each of so many gets was a message. */
static int messages(long before, int gets)
{
    long bytes = said - before;
    CHECK(bytes == 0 || bytes > 10 * gets);
    return bytes > 0;
}
