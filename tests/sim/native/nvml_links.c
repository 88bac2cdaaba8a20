/* How GPUs hang together: NVLink, the fabric, peer-to-peer, topology, affinity; and the field values. */
#include "nvml_answers.h"

#include <limits.h>
#include <string.h>
#include <time.h>

nvmlReturn_t put_pci(Answer answer, nvmlPciInfo_t *pci, bool legacy); /* nvml_structs.c */

/* ---- NVLink ---- */

/* Whether the GPU has this link: field 91 tells how many, where the scenario has it. */
static bool is_link(nvmlDevice_t device, unsigned link) {
    Answer told = store_find(&ABOUT(device, "nvmlDeviceGetFieldValues", NVML_FI_DEV_NVLINK_LINK_COUNT, 0));
    return link < NVML_NVLINK_MAX_LINKS && link < store_integer(told, NVML_NVLINK_MAX_LINKS);
}

/* `ask` about a link, which is the question's first argument. */
static nvmlReturn_t ask_link(nvmlDevice_t device, Question question, Answer *answer) {
    nvmlReturn_t code = ask(question, answer);
    bool lacks = code == NVML_SUCCESS || code == NVML_ERROR_NOT_SUPPORTED; /* else the code is of more weight */
    return lacks && !is_link(device, (unsigned)question.arguments[0]) ? NVML_ERROR_INVALID_ARGUMENT : code;
}

static nvmlReturn_t give_link(nvmlDevice_t device, Question question, void *to, size_t size) {
    Answer answer;
    nvmlReturn_t code = to ? ask_link(device, question, &answer) : NVML_ERROR_INVALID_ARGUMENT;
    return code ? code : put_number(answer, to, size);
}

#define LINK(function, type)                                                                                           \
    nvmlReturn_t function(nvmlDevice_t device, unsigned link, type *out) {                                             \
        return give_link(device, ABOUT(device, #function, link), out, sizeof *out);                                    \
    }
#define LINK_1(function, argument, type)                                                                               \
    nvmlReturn_t function(nvmlDevice_t device, unsigned link, argument a, type *out) {                                 \
        return give_link(device, ABOUT(device, #function, link, a), out, sizeof *out);                                 \
    }

LINK(nvmlDeviceGetNvLinkState, nvmlEnableState_t)
LINK(nvmlDeviceGetNvLinkVersion, unsigned)
LINK(nvmlDeviceGetNvLinkRemoteDeviceType, nvmlIntNvLinkDeviceType_t)
LINK_1(nvmlDeviceGetNvLinkCapability, nvmlNvLinkCapability_t, unsigned)
LINK_1(nvmlDeviceGetNvLinkErrorCounter, nvmlNvLinkErrorCounter_t, unsigned long long)

static nvmlReturn_t remote(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci, bool legacy) {
    Answer answer;
    Question question = ABOUT(device, "nvmlDeviceGetNvLinkRemotePciInfo", link);
    nvmlReturn_t code = pci ? ask_link(device, question, &answer) : NVML_ERROR_INVALID_ARGUMENT;
    return code ? code : put_pci(answer, pci, legacy);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
    return remote(device, link, pci, false);
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
    return remote(device, link, pci, true);
}

/* ---- fabric ---- */

static const Field fabric_v1[] = {FIELD(nvmlGpuFabricInfo_t, clusterUuid), FIELD(nvmlGpuFabricInfo_t, status),
                                  FIELD(nvmlGpuFabricInfo_t, cliqueId), FIELD(nvmlGpuFabricInfo_t, state),
                                  END_OF_FIELDS};
static const Field fabric_v2[] = {FIELD(nvmlGpuFabricInfo_v2_t, clusterUuid), FIELD(nvmlGpuFabricInfo_v2_t, status),
                                  FIELD(nvmlGpuFabricInfo_v2_t, cliqueId),    FIELD(nvmlGpuFabricInfo_v2_t, state),
                                  FIELD(nvmlGpuFabricInfo_v2_t, healthMask),  END_OF_FIELDS};
static const Field fabric_v3[] = {FIELD(nvmlGpuFabricInfo_v3_t, clusterUuid),
                                  FIELD(nvmlGpuFabricInfo_v3_t, status),
                                  FIELD(nvmlGpuFabricInfo_v3_t, cliqueId),
                                  FIELD(nvmlGpuFabricInfo_v3_t, state),
                                  FIELD(nvmlGpuFabricInfo_v3_t, healthMask),
                                  FIELD(nvmlGpuFabricInfo_v3_t, healthSummary),
                                  END_OF_FIELDS};

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    Question question = ABOUT(device, "nvmlDeviceGetGpuFabricInfoV");
    if (info && info->version == nvmlGpuFabricInfo_v2)
        return give_versioned(question, info, nvmlGpuFabricInfo_v2, fabric_v2);
    return give_versioned(question, info, nvmlGpuFabricInfo_v3, fabric_v3);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    return give_fields(ABOUT(device, "nvmlDeviceGetGpuFabricInfoV"), info, fabric_v1);
}

/* ---- two GPUs: the second one is the first argument, by its index ---- */

/* Ask the first GPU; a second one that is lost answers for both. */
static nvmlReturn_t give_between(nvmlDevice_t other, Question question, void *to, size_t size) {
    Place place = place_of(other);
    if (place.gpu < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t code = give_number(question, to, size);
    Question back = question;
    back.where = place;
    back.arguments[0] = question.where.gpu;
    if (code == NVML_SUCCESS)
        code = store_fault(&back);
    return code;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t *status) {
    Question question = ABOUT(device, "nvmlDeviceGetP2PStatus", place_of(peer).gpu, index);
    return give_between(peer, question, status, sizeof *status);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t peer,
                                                 nvmlGpuTopologyLevel_t *level) {
    Question question = ABOUT(device, "nvmlDeviceGetTopologyCommonAncestor", place_of(peer).gpu);
    return give_between(peer, question, level, sizeof *level);
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t peer, int *same) {
    Question question = ABOUT(device, "nvmlDeviceOnSameBoard", place_of(peer).gpu);
    return give_between(peer, question, same, sizeof *same);
}

/* ---- affinity: bit masks of processors or memory nodes, as many words as the caller has room for ---- */

static nvmlReturn_t give_mask(Question question, unsigned size, unsigned long *mask) {
    Answer answer;
    nvmlReturn_t code = mask && size ? ask(question, &answer) : NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && !store_is_list(answer))
        code = WRONG_KIND;
    for (unsigned i = 0; i < size && code == NVML_SUCCESS; i++) {
        mask[i] = 0;
        if (i < store_length(answer))
            code = put_number(store_item(answer, i), &mask[i], sizeof mask[i]);
    }
    return code;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, unsigned long *mask) {
    return give_mask(ABOUT(device, "nvmlDeviceGetCpuAffinity"), size, mask);
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned size, unsigned long *mask,
                                                 nvmlAffinityScope_t scope) {
    return give_mask(ABOUT(device, "nvmlDeviceGetCpuAffinityWithinScope", scope), size, mask);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *mask,
                                         nvmlAffinityScope_t scope) {
    return give_mask(ABOUT(device, "nvmlDeviceGetMemoryAffinity", scope), size, mask);
}

/* ---- field values: one call about many fields, each with a code of its own ---- */

static nvmlReturn_t put_value(Answer answer, nvmlFieldValue_t *field) {
    long long number = number_now(answer);
    if (store_is_real(answer)) {
        field->valueType = NVML_VALUE_TYPE_DOUBLE;
        field->value.dVal = store_real(answer, 0);
        return NVML_SUCCESS;
    }
    if (!store_is_number(answer) && !store_is_object(answer))
        return WRONG_KIND;
    if (number >= 0 && number <= UINT_MAX)
        field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    else if (number < 0 && number >= INT_MIN)
        field->valueType = NVML_VALUE_TYPE_SIGNED_INT;
    else
        field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field->value.sllVal = number; /* all eight bytes: readers of other types than the told one see the number too */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields) {
    struct timespec now;
    Answer answer;
    if (!fields || count <= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t code = check(ABOUT(device, "nvmlDeviceGetFieldValues"));
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        nvmlFieldValue_t *field = &fields[i];
        memset(&field->value, 0, sizeof field->value);
        field->timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
        field->latencyUsec = 0;
        field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        field->nvmlReturn = code;
        if (code == NVML_SUCCESS)
            field->nvmlReturn =
                look_up(ABOUT(device, "nvmlDeviceGetFieldValues", field->fieldId, field->scopeId), &answer);
        bool state = field->fieldId == NVML_FI_DEV_NVLINK_GET_STATE && is_link(device, field->scopeId);
        if (code == NVML_SUCCESS && field->nvmlReturn == NVML_ERROR_NOT_SUPPORTED && state)
            field->nvmlReturn = look_up(ABOUT(device, "nvmlDeviceGetNvLinkState", field->scopeId), &answer);
        if (field->nvmlReturn == NVML_SUCCESS)
            field->nvmlReturn = put_value(answer, field);
    }
    return code;
}
