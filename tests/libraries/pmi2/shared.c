/* Gets with and without the server's memory. The library talks to the server through this program, which counts what
 * it says.
 *
 *   local            values come without a message; keys that are not there, and other jobs, are asked for
 *   asked [OFFER]    with that offer instead of the server's, or none: values come by messages
 *   sealed           only the server can write to the memory
 */
#define _GNU_SOURCE
#include "../clients/pmi2_check.h"
#include "between.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Puts some values, again in each round, and gets those of all ranks in every form that asks for the own job. */
static int exchange(void)
{
    int asked = 0;
    for (int round = 0; round < 3; round++) {
        char key[32], value[PMI2_MAX_VALLEN], wanted[64];
        snprintf(key, sizeof key, "key-%d", rank);
        snprintf(value, sizeof value, "%d;%d;of=this round", rank, round);
        OK(PMI2_KVS_Put(key, value));
        snprintf(key, sizeof key, "bytes-%d", rank);
        OK(hydrant_kvs_put(key, "a\0;b", 4));
        snprintf(key, sizeof key, "empty-%d", rank);
        OK(PMI2_KVS_Put(key, ""));
        /* What one has put is there at once. */
        long before = said;
        check_value(jobid, rank, key, "");
        OK(PMI2_KVS_Fence());
        before = said;
        for (int i = 0; i < size; i++) {
            snprintf(wanted, sizeof wanted, "%d;%d;of=this round", i, round);
            snprintf(key, sizeof key, "key-%d", i);
            check_value(NULL, PMI2_ID_NULL, key, wanted);
            check_value("", i, key, wanted);
            check_value(jobid, i, key, wanted);
            snprintf(key, sizeof key, "empty-%d", i);
            check_value(jobid, i, key, "");
            CHECK(has_key(NULL, key));
            int length = 0;
            snprintf(key, sizeof key, "bytes-%d", i);
            OK(PMI2_KVS_Get(NULL, i, key, value, sizeof value, &length));
            CHECK(length == 4 && memcmp(value, "a\0;b", 5) == 0);
        }
        asked = messages(before, 6 * size);
        OK(PMI2_KVS_Fence());
    }
    return asked;
}

/* Lengths of a value that does not fit. */
static void cut(void)
{
    char key[32], value[8];
    int length = 0;
    snprintf(key, sizeof key, "key-%d", rank);
    for (int room = 0; room < 8; room++) {
        memset(value, '.', sizeof value);
        OK(PMI2_KVS_Get(NULL, rank, key, value, room, &length));
        CHECK(length < -10 && (room == 0 || ((int)strlen(value) == room - 1)));
        CHECK(room == 7 || value[7] == '.');
    }
    OK(PMI2_KVS_Get(NULL, rank, key, NULL, 99, &length));
    CHECK(length < -10);
}

static void sealed(void)
{
    char path[256], buf[64];
    struct stat stat;
    CHECK(getenv("HYDRANT_KVS") && sscanf(getenv("HYDRANT_KVS"), "2,%255[^,]", path) == 1);
    for (int way = O_RDONLY; way <= O_RDWR; way += O_RDWR) {
        int fd = open(path, way);
        CHECK(fd >= 0 && fstat(fd, &stat) == 0 && stat.st_size > 4096);
        CHECK(pwrite(fd, "x", 1, 0) < 0 && ftruncate(fd, 0) < 0 && ftruncate(fd, stat.st_size + 1) < 0);
        CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
        void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(memory != MAP_FAILED && mprotect(memory, 4096, PROT_READ | PROT_WRITE) < 0);
        CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 && pread(fd, buf, sizeof buf, 0) == sizeof buf);
        CHECK(munmap(memory, 4096) == 0 && close(fd) == 0);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int asks = !strcmp(what, "asked");
    if (asks && argc > 2)
        setenv("HYDRANT_KVS", argv[2], 1);
    else if (asks)
        unsetenv("HYDRANT_KVS");
    pthread_t thread = between();
    start();
    CHECK(exchange() == asks);
    long before = said;
    cut();
    CHECK(messages(before, 9) == asks);
    before = said;
    FAILS(has_key(NULL, "no such key") ? PMI2_SUCCESS : PMI2_FAIL);
    FAILS(has_key("no-such-job", "key-0") ? PMI2_SUCCESS : PMI2_FAIL);
    CHECK(messages(before, 4));
    if (!strcmp(what, "sealed"))
        sealed();
    OK(PMI2_KVS_Fence());
    OK(PMI2_Finalize());
    CHECK(PMI2_KVS_Get(NULL, 0, "key-0", NULL, 0, &argc) != PMI2_SUCCESS);
    CHECK(pthread_join(thread, NULL) == 0);
    SAY("%s rank %d of %d", asks ? "asked" : "read", rank, size);
    return 0;
}
