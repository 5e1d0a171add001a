/* Values of any bytes, put and got by the functions of hydrant's pmi2.h.
 *
 *   (nothing)  the server reads escaped values
 *   hosts      the same, with one rank on each host
 *   refused    the server does not read them: values without NUL pass, others are refused
 */
#include "../clients/pmi2_check.h"

static char all[PMI2_MAX_VALLEN], most[PMI2_MAX_VALLEN + 1];

/* The value of a rank, with each byte four times. Returns its length: all ranks but the first have shorter ones. */
static int make(int of)
{
    for (int i = 0; i < PMI2_MAX_VALLEN; i++)
        all[i] = (char)(i + of);
    return of ? PMI2_MAX_VALLEN - 300 * of : PMI2_MAX_VALLEN;
}

static void pairs(void)
{
    char key[32], value[PMI2_MAX_VALLEN + 1];
    int length = make(rank), got = 0;
    snprintf(key, sizeof key, "bytes-%d", rank);
    OK(hydrant_kvs_put(key, all, length));
    OK(hydrant_kvs_put("only NUL", "", 1));
    OK(hydrant_kvs_put("nothing", NULL, 0));
    OK(PMI2_KVS_Fence());
    for (int of = 0; of < size; of++) {
        length = make(of);
        snprintf(key, sizeof key, "bytes-%d", of);
        OK(PMI2_KVS_Get(NULL, of, key, value, sizeof value, &got));
        CHECK(got == length && memcmp(value, all, length) == 0 && value[length] == 0);
        OK(PMI2_KVS_Get(NULL, of, key, value, 10, &got));
        CHECK(got == -length && memcmp(value, all, 9) == 0 && value[9] == 0);
    }
    OK(PMI2_KVS_Get(NULL, 0, "only NUL", value, sizeof value, &got));
    CHECK(got == 1 && memcmp(value, "\0", 2) == 0);
    check_value(NULL, 0, "nothing", "");
}

/* Attributes of the node: the first rank puts one that the others wait for. */
static void attributes(int puts)
{
    char value[PMI2_MAX_VALLEN + 1];
    int length = -1, found = -1;
    OK(hydrant_node_attr_get("no such name", value, sizeof value, &length, &found, 0));
    CHECK(found == 0 && length == -1);
    if (puts)
        OK(hydrant_node_attr_put("bytes", ";\0\1\0=", 5));
    OK(hydrant_node_attr_get("bytes", value, sizeof value, &length, &found, 1));
    CHECK(found == 1 && length == 5 && memcmp(value, ";\0\1\0=", 6) == 0);
    OK(hydrant_node_attr_get("bytes", value, 3, &length, &found, 1));
    CHECK(found == 1 && length == -5 && memcmp(value, ";\0", 3) == 0);
    OK(PMI2_Info_GetNodeAttr("bytes", value, sizeof value, &found, 1));
    CHECK(found == 1 && memcmp(value, ";\0\1\0=", 6) == 0);
}

static void codes(void)
{
    CHECK(hydrant_kvs_put(NULL, "", 1) == PMI2_ERR_INVALID_KEY);
    CHECK(hydrant_kvs_put("k", NULL, 1) == PMI2_ERR_INVALID_VAL);
    CHECK(hydrant_kvs_put("k", "", -1) == PMI2_ERR_INVALID_VAL_LENGTH);
    CHECK(hydrant_kvs_put("k", most, sizeof most) == PMI2_ERR_INVALID_VAL_LENGTH);
    CHECK(hydrant_node_attr_put("", "", 1) == PMI2_ERR_INVALID_KEY);
    CHECK(hydrant_node_attr_get("k", most, sizeof most, NULL, NULL, 0) == PMI2_ERR_INVALID_ARG);
}

int main(int argc, char **argv)
{
    int refused = argc > 1 && !strcmp(argv[1], "refused");
    CHECK(hydrant_kvs_put("k", "v", 1) == PMI2_ERR_INIT);
    start();
    codes();
    if (refused) {
        char key[32];
        snprintf(key, sizeof key, "plain-%d", rank);
        CHECK(hydrant_kvs_put("k", "a\0b", 3) == PMI2_ERR_INVALID_VAL);
        CHECK(hydrant_node_attr_put("k", "a\0b", 3) == PMI2_ERR_INVALID_VAL);
        OK(hydrant_kvs_put(key, "a b", 3));
        OK(PMI2_KVS_Fence());
        check_value(NULL, rank, key, "a b");
    } else {
        pairs();
        attributes(rank == 0 || argc > 1);
    }
    OK(PMI2_KVS_Fence());
    OK(PMI2_Finalize());
    SAY("bytes of rank %d of %d", rank, size);
    return 0;
}
