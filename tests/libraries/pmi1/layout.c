/* What one pmi.h says, as a table. Compiled once for each header: TABLE is the table's name, HEADER the header. A function
 * of another type than the one written here does not compile. */
#include HEADER
#include <stddef.h>
#include "../pmi2/layout.h"

#define NUMBER(name) {#name, (long)(name), NULL}
#define SIZE(type) {"sizeof " #type, (long)sizeof(type), NULL}
#define FIELD(type, field)                                  \
    {#type "." #field, (long)offsetof(type, field), NULL}, \
    {"sizeof " #type "." #field, (long)sizeof(((type *)0)->field), NULL}
#define FUNCTION(name, ...) {#name, _Generic(&name, int (*)(__VA_ARGS__): 1), NULL}

const struct entry TABLE[] = {
    NUMBER(PMI_SUCCESS), NUMBER(PMI_FAIL), NUMBER(PMI_ERR_INIT), NUMBER(PMI_ERR_NOMEM), NUMBER(PMI_ERR_INVALID_ARG),
    NUMBER(PMI_ERR_INVALID_KEY), NUMBER(PMI_ERR_INVALID_KEY_LENGTH), NUMBER(PMI_ERR_INVALID_VAL),
    NUMBER(PMI_ERR_INVALID_VAL_LENGTH), NUMBER(PMI_ERR_INVALID_LENGTH), NUMBER(PMI_ERR_INVALID_NUM_ARGS),
    NUMBER(PMI_ERR_INVALID_ARGS), NUMBER(PMI_ERR_INVALID_NUM_PARSED), NUMBER(PMI_ERR_INVALID_KEYVALP),
    NUMBER(PMI_ERR_INVALID_SIZE), NUMBER(PMI_ERR_INVALID_KVS), NUMBER(PMI_TRUE), NUMBER(PMI_FALSE), SIZE(PMI_BOOL),
    SIZE(PMI_keyval_t), SIZE(struct PMI_keyval_t), FIELD(PMI_keyval_t, key), FIELD(PMI_keyval_t, val),
    FUNCTION(PMI_Init, int *), FUNCTION(PMI_Initialized, PMI_BOOL *), FUNCTION(PMI_Finalize, void),
    FUNCTION(PMI_Get_size, int *), FUNCTION(PMI_Get_rank, int *), FUNCTION(PMI_Get_universe_size, int *),
    FUNCTION(PMI_Get_appnum, int *), FUNCTION(PMI_Publish_name, const char *, const char *),
    FUNCTION(PMI_Unpublish_name, const char *), FUNCTION(PMI_Lookup_name, const char *, char *),
    FUNCTION(PMI_Get_id, char *, int), FUNCTION(PMI_Get_kvs_domain_id, char *, int),
    FUNCTION(PMI_Get_id_length_max, int *), FUNCTION(PMI_Barrier, void), FUNCTION(PMI_Get_clique_size, int *),
    FUNCTION(PMI_Get_clique_ranks, int *, int), FUNCTION(PMI_Abort, int, const char *),
    FUNCTION(PMI_KVS_Get_my_name, char *, int), FUNCTION(PMI_KVS_Get_name_length_max, int *),
    FUNCTION(PMI_KVS_Get_key_length_max, int *), FUNCTION(PMI_KVS_Get_value_length_max, int *),
    FUNCTION(PMI_KVS_Create, char *, int), FUNCTION(PMI_KVS_Destroy, const char *),
    FUNCTION(PMI_KVS_Put, const char *, const char *, const char *), FUNCTION(PMI_KVS_Commit, const char *),
    FUNCTION(PMI_KVS_Get, const char *, const char *, char *, int),
    FUNCTION(PMI_KVS_Iter_first, const char *, char *, int, char *, int),
    FUNCTION(PMI_KVS_Iter_next, const char *, char *, int, char *, int),
    FUNCTION(PMI_Spawn_multiple, int, const char **, const char ***, const int *, const int *, const PMI_keyval_t **,
             int, const PMI_keyval_t *, int *),
    FUNCTION(PMI_Parse_option, int, char **, int *, PMI_keyval_t **, int *),
    FUNCTION(PMI_Args_to_keyval, int *, char *((*)[]), PMI_keyval_t **, int *),
    FUNCTION(PMI_Free_keyvals, PMI_keyval_t *, int), FUNCTION(PMI_Get_options, char *, int *),
    {NULL, 0, NULL},
};
