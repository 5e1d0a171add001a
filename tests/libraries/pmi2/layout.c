/* What one pmi2.h says, as a table. Compiled once for each header: TABLE is the table's name, HEADER the header. A
 * function of another type than the one written here does not compile. */
#include HEADER
#include <stddef.h>
#include <string.h>
#include "layout.h"

#define NUMBER(name) {#name, (long)(name), NULL}
#define WORD(name) {#name, (long)sizeof(name), name}
#define SIZE(type) {"sizeof " #type, (long)sizeof(type), NULL}
#define FIELD(type, field)                                  \
    {#type "." #field, (long)offsetof(type, field), NULL}, \
    {"sizeof " #type "." #field, (long)sizeof(((type *)0)->field), NULL}
#define FUNCTION(name, ...) {#name, _Generic(&name, int (*)(__VA_ARGS__): 1), NULL}

typedef const struct MPID_Info *Pair, **Pairs;

const struct entry TABLE[] = {
    NUMBER(PMI2_MAX_KEYLEN), NUMBER(PMI2_MAX_VALLEN), NUMBER(PMI2_MAX_ATTRVALUE), NUMBER(PMI2_ID_NULL),
    NUMBER(PMII_COMMANDLEN_SIZE), NUMBER(PMII_MAX_COMMAND_LEN), NUMBER(HAVE_PMIX_RING),
    NUMBER(PMI2_SUCCESS), NUMBER(PMI2_FAIL), NUMBER(PMI2_ERR_INIT), NUMBER(PMI2_ERR_NOMEM),
    NUMBER(PMI2_ERR_INVALID_ARG), NUMBER(PMI2_ERR_INVALID_KEY), NUMBER(PMI2_ERR_INVALID_KEY_LENGTH),
    NUMBER(PMI2_ERR_INVALID_VAL), NUMBER(PMI2_ERR_INVALID_VAL_LENGTH), NUMBER(PMI2_ERR_INVALID_LENGTH),
    NUMBER(PMI2_ERR_INVALID_NUM_ARGS), NUMBER(PMI2_ERR_INVALID_ARGS), NUMBER(PMI2_ERR_INVALID_NUM_PARSED),
    NUMBER(PMI2_ERR_INVALID_KEYVALP), NUMBER(PMI2_ERR_INVALID_SIZE), NUMBER(PMI2_ERR_OTHER),
    SIZE(MPID_Info), SIZE(struct MPID_Info), SIZE(PMI2U_Info), FIELD(MPID_Info, handle), FIELD(MPID_Info, pobj_mutex),
    FIELD(MPID_Info, ref_count), FIELD(MPID_Info, next), FIELD(MPID_Info, key), FIELD(MPID_Info, value),
    SIZE(PMI2_Connect_comm_t), SIZE(struct PMI2_Connect_comm), FIELD(PMI2_Connect_comm_t, read),
    FIELD(PMI2_Connect_comm_t, write), FIELD(PMI2_Connect_comm_t, ctx), FIELD(PMI2_Connect_comm_t, isMaster),
    SIZE(PMI2_Keyvalpair), FIELD(PMI2_Keyvalpair, key), FIELD(PMI2_Keyvalpair, value),
    FIELD(PMI2_Keyvalpair, valueLen), FIELD(PMI2_Keyvalpair, isCopy), SIZE(struct PMI2_Keyvalpair),
    SIZE(PMI2_Command), FIELD(PMI2_Command, nPairs), FIELD(PMI2_Command, command), FIELD(PMI2_Command, pairs),
    FIELD(PMI2_Command, complete), SIZE(struct PMI2_Command),
    FUNCTION(PMI2_Init, int *, int *, int *, int *), FUNCTION(PMI2_Finalize, void), FUNCTION(PMI2_Initialized, void),
    FUNCTION(PMI2_Abort, int, const char *),
    FUNCTION(PMI2_Job_Spawn, int, const char **, int *, const char ***, const int *, const int *, Pairs, int, Pairs,
             char *, int, int *),
    FUNCTION(PMI2_Job_GetId, char *, int), FUNCTION(PMI2_Job_GetRank, int *), FUNCTION(PMI2_Info_GetSize, int *),
    FUNCTION(PMI2_Job_Connect, const char *, PMI2_Connect_comm_t *), FUNCTION(PMI2_Job_Disconnect, const char *),
    FUNCTION(PMIX_Ring, const char *, int *, int *, char *, char *, int),
    FUNCTION(PMI2_KVS_Put, const char *, const char *), FUNCTION(PMI2_KVS_Fence, void),
    FUNCTION(PMI2_KVS_Get, const char *, int, const char *, char *, int, int *),
    FUNCTION(PMI2_Info_GetNodeAttr, const char *, char *, int, int *, int),
    FUNCTION(PMI2_Info_GetNodeAttrIntArray, const char *, int *, int, int *, int *),
    FUNCTION(PMI2_Info_PutNodeAttr, const char *, const char *),
    FUNCTION(PMI2_Info_GetJobAttr, const char *, char *, int, int *),
    FUNCTION(PMI2_Info_GetJobAttrIntArray, const char *, int *, int, int *, int *),
    FUNCTION(PMI2_Nameserv_publish, const char *, Pair, const char *),
    FUNCTION(PMI2_Nameserv_lookup, const char *, Pair, char *, int),
    FUNCTION(PMI2_Nameserv_unpublish, const char *, Pair),
    WORD(FULLINIT_CMD), WORD(FULLINITRESP_CMD), WORD(FINALIZE_CMD), WORD(FINALIZERESP_CMD), WORD(ABORT_CMD),
    WORD(JOBGETID_CMD), WORD(JOBGETIDRESP_CMD), WORD(JOBCONNECT_CMD), WORD(JOBCONNECTRESP_CMD),
    WORD(JOBDISCONNECT_CMD), WORD(JOBDISCONNECTRESP_CMD), WORD(KVSPUT_CMD), WORD(KVSPUTRESP_CMD), WORD(KVSFENCE_CMD),
    WORD(KVSFENCERESP_CMD), WORD(KVSGET_CMD), WORD(KVSGETRESP_CMD), WORD(GETNODEATTR_CMD), WORD(GETNODEATTRRESP_CMD),
    WORD(PUTNODEATTR_CMD), WORD(PUTNODEATTRRESP_CMD), WORD(GETJOBATTR_CMD), WORD(GETJOBATTRRESP_CMD),
    WORD(NAMEPUBLISH_CMD), WORD(NAMEPUBLISHRESP_CMD), WORD(NAMEUNPUBLISH_CMD), WORD(NAMEUNPUBLISHRESP_CMD),
    WORD(NAMELOOKUP_CMD), WORD(NAMELOOKUPRESP_CMD), WORD(RING_CMD), WORD(RINGRESP_CMD), WORD(PMIJOBID_KEY),
    WORD(PMIRANK_KEY), WORD(SRCID_KEY), WORD(THREADED_KEY), WORD(RC_KEY), WORD(ERRMSG_KEY), WORD(PMIVERSION_KEY),
    WORD(PMISUBVER_KEY), WORD(RANK_KEY), WORD(SIZE_KEY), WORD(APPNUM_KEY), WORD(SPAWNERJOBID_KEY),
    WORD(DEBUGGED_KEY), WORD(PMIVERBOSE_KEY), WORD(ISWORLD_KEY), WORD(MSG_KEY), WORD(JOBID_KEY), WORD(KVSCOPY_KEY),
    WORD(KEY_KEY), WORD(VALUE_KEY), WORD(FOUND_KEY), WORD(WAIT_KEY), WORD(NAME_KEY), WORD(PORT_KEY), WORD(THRID_KEY),
    WORD(INFOKEYCOUNT_KEY), WORD(INFOKEY_KEY), WORD(INFOVAL_KEY), WORD(RING_COUNT_KEY), WORD(RING_LEFT_KEY),
    WORD(RING_RIGHT_KEY), WORD(TRUE_VAL), WORD(FALSE_VAL),
    {NULL, 0, NULL},
};
