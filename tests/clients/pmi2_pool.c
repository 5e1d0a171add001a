/* The memory pool of `hydrant run --mem-pool SIZE`, which the ranks of a host share.
 *
 *   pmi2_pool SIZE      each rank of a host writes into the pool, and reads what the others have written
 *   pmi2_pool missing   there is no pool
 */
#define _GNU_SOURCE
#include "pmi2_check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The number of ranks that have written, and what each of them has. */
struct pool {
    atomic_int count;
    atomic_int values[];
};

int main(int argc, char **argv)
{
    char type[32] = "", number[32] = "";
    int type_found = -1, found = -1, locals[64], count = 0;
    struct stat stat;
    CHECK(argc == 2);
    start();
    OK(PMI2_Info_GetNodeAttr("memPoolType", type, sizeof type, &type_found, 0));
    OK(PMI2_Info_GetNodeAttr("memAnonMMAPfd", number, sizeof number, &found, 0));
    CHECK(found == type_found);
    if (!strcmp(argv[1], "missing")) {
        CHECK(!found);
        OK(PMI2_Finalize());
        SAY("no pool");
        return 0;
    }
    CHECK(found && !strcmp(type, "anonmmap"));

    /* The descriptor is inherited. Its file has a fixed size. */
    int fd = atoi(number);
    CHECK(fstat(fd, &stat) == 0 && stat.st_size == atol(argv[1]));
    CHECK(ftruncate(fd, 0) < 0 && errno == EPERM && ftruncate(fd, stat.st_size + 1) < 0 && errno == EPERM);
    struct pool *pool = mmap(NULL, stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(pool != MAP_FAILED);

    pool->values[rank] = 1000 + rank;
    pool->count++;
    OK(PMI2_KVS_Fence());
    OK(PMI2_Info_GetNodeAttrIntArray("localRanks", locals, 64, &count, &found));
    CHECK(found && pool->count == count);
    /* Ranks of other hosts have another pool. */
    for (int other = 0, here = 0; other < size; other++) {
        int local = here < count && locals[here] == other;
        CHECK(pool->values[other] == (local ? 1000 + other : 0));
        here += local;
    }
    OK(PMI2_KVS_Fence());
    OK(PMI2_Finalize());
    SAY("rank %d shares with %d", rank, count);
    return 0;
}
