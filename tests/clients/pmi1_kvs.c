/* Exchange over pmi.h: each rank puts pairs, waits, and gets those of all others; rank 0 prints how many were wrong.
 *
 *   pmi1_kvs [PAIRS] [LENGTH] [ROUNDS]
 */
#include <slurm/pmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ != PMI_SUCCESS) {                                                                  \
            fprintf(stderr, "rank %d: %s:%d: %s gave %d\n", rank, __FILE__, __LINE__, #call, rc_); \
            PMI_Abort(97, #call);                                                                  \
        }                                                                                          \
    } while (0)

static void fill(char *value, int length, int seed)
{
    /* The digits of base 85 in which GASNet writes its values, with quotes, backslash, semicolon and equals sign. */
    for (int i = 0; i < length; i++) value[i] = '!' + (seed + i * 7) % 85;
    value[length] = '\0';
}

int main(int argc, char **argv)
{
    int pairs = argc > 1 ? atoi(argv[1]) : 4, length = argc > 2 ? atoi(argv[2]) : 900;
    int rounds = argc > 3 ? atoi(argv[3]) : 3, spawned = -1, size = -1, rank = -1, wrong = 0;
    char space[257], key[64], value[1025], wanted[1025];
    OK(PMI_Init(&spawned));
    OK(PMI_Get_size(&size));
    OK(PMI_Get_rank(&rank));
    OK(PMI_KVS_Get_my_name(space, sizeof space));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < pairs; i++) {
            snprintf(key, sizeof key, "k-%d-%d-%d", round, rank, i);
            fill(value, length, rank + i + round);
            OK(PMI_KVS_Put(space, key, value));
        }
        OK(PMI_KVS_Commit(space));
        OK(PMI_Barrier());
        for (int other = 0; other < size; other++) {
            for (int i = 0; i < pairs; i++) {
                snprintf(key, sizeof key, "k-%d-%d-%d", round, other, i);
                fill(wanted, length, other + i + round);
                OK(PMI_KVS_Get(space, key, value, sizeof value));
                wrong += strcmp(value, wanted) != 0;
            }
        }
    }
    snprintf(key, sizeof key, "wrong-%d", rank);
    snprintf(value, sizeof value, "%d", wrong);
    OK(PMI_KVS_Put(space, key, value));
    OK(PMI_KVS_Commit(space));
    OK(PMI_Barrier());
    for (int other = 1; rank == 0 && other < size; other++) {
        snprintf(key, sizeof key, "wrong-%d", other);
        OK(PMI_KVS_Get(space, key, value, sizeof value));
        wrong += atoi(value);
    }
    if (rank == 0) printf("pmi1 size=%d errs=%d\n", size, wrong);
    OK(PMI_Finalize());
    return wrong != 0;
}
