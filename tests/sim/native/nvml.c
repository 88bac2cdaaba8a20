/* The simulated libnvidia-ml.so.1: start and end, error texts, handles, and what is asked about the whole machine.
 * Getters of a GPU are in the other nvml_*.c; every other function of nvml.h is a stub that build.py writes. */
#include "nvml_answers.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- handles: addresses into a fixed array, so that any other address is known to be none ---- */

#define MOST_GPUS 128
#define MOST_MIG 8
#define NO_PLACE (-2)

struct nvmlDevice_st {
    char unused;
};
static struct nvmlDevice_st handles[MOST_GPUS][1 + MOST_MIG]; /* the GPU itself, then its MIG devices */

static nvmlDevice_t handle_of(Place place) { return &handles[place.gpu][place.mig + 1]; }

Place place_of(nvmlDevice_t device) {
    uintptr_t at = (uintptr_t)device - (uintptr_t)handles;
    if (at >= sizeof handles)
        return (Place){NO_PLACE, -1};
    return (Place){(int)(at / sizeof handles[0]), (int)(at % sizeof handles[0]) - 1};
}

/* ---- start and end ---- */

static atomic_int users; /* as many nvmlInit as nvmlShutdown */

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!store_ready()) {
        fprintf(stderr, "simulated nvml: the answers hold no section nvml\n");
        return NVML_ERROR_UNKNOWN;
    }
    nvmlReturn_t code = store_obey(&ABOUT_MACHINE("nvmlInit"));
    Answer answer = store_member("init");
    if (code == NVML_SUCCESS)
        code = store_code(answer) ? (nvmlReturn_t)store_code(answer) : (nvmlReturn_t)store_integer(answer, 0);
    if (code == NVML_SUCCESS)
        users++;
    if (code == NVML_ERROR_DRIVER_NOT_LOADED)
        store_load_module();
    return code;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    if (users <= 0)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t code = store_obey(&ABOUT_MACHINE("nvmlShutdown"));
    if (code == NVML_SUCCESS && --users == 0)
        store_close(-1);
    return code;
}

nvmlReturn_t check(Question question) {
    if (users <= 0)
        return NVML_ERROR_UNINITIALIZED;
    if (question.where.gpu == NO_PLACE)
        return NVML_ERROR_INVALID_ARGUMENT;
    return (nvmlReturn_t)store_obey(&question);
}

nvmlReturn_t look_up(Question question, Answer *answer) {
    int code = store_look_up(&question, answer);
    return code == STORE_NO_ANSWER ? NVML_ERROR_NOT_SUPPORTED : (nvmlReturn_t)code;
}

nvmlReturn_t ask(Question question, Answer *answer) {
    nvmlReturn_t code = check(question);
    return code ? code : look_up(question, answer);
}

const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const texts[] = {
#define NVML_WORDS(code, words) [code] = words,
#include "nvml_words.inc"
    };
    const char *text = (unsigned)code < sizeof texts / sizeof *texts ? texts[code] : NULL;
    return text ? text : texts[NVML_ERROR_UNKNOWN];
}

/* What no code here answers: NOT_SUPPORTED, unless a fault or the scenario has a return code for it. */
int answer_of_stub(const char *function, void *first);
int answer_of_stub(const char *function, void *first) {
    char key[128];
    Answer answer;
    size_t length = strlen(function);
    bool versioned = length > 3 && function[length - 3] == '_' && function[length - 2] == 'v';
    snprintf(key, sizeof key, "%.*s", (int)(length - (versioned ? 3 : 0)), function);
    Place where = strncmp(function, "nvmlDevice", 10) ? THE_MACHINE : place_of(first);
    nvmlReturn_t code = ask(QUESTION(key, where), &answer);
    return code == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : code;
}

/* ---- how many GPUs, and their handles ---- */

/* The count that the scenario tells, which may be wrong, else the number of its GPUs. */
static long long gpu_count(void) {
    Answer told = store_find(&ABOUT_MACHINE("nvmlDeviceGetCount"));
    return store_integer(told, (long long)store_length(store_member("gpus")));
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    Answer answer;
    nvmlReturn_t code = count ? ask(ABOUT_MACHINE("nvmlDeviceGetCount"), &answer) : NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS || code == NVML_ERROR_NOT_SUPPORTED) {
        *count = (unsigned)gpu_count();
        code = NVML_SUCCESS;
    }
    return code;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

/* The handle of a place that exists, unless a fault or the scenario refuses it. Where it opens the GPU it wakes it,
 * also where that fails in the end. */
static nvmlReturn_t give_handle(const char *function, Place place, nvmlDevice_t *device) {
    Answer answer;
    Question question = QUESTION(function, place);
    bool opens = device && users > 0 && !strncmp(function, "nvmlDeviceGetHandleBy", 21);
    if (opens)
        store_wake(place.gpu);
    nvmlReturn_t code = device ? check(question) : NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS) {
        int held = store_look_up(&question, &answer);
        code = held == STORE_NO_ANSWER ? NVML_SUCCESS : (nvmlReturn_t)held; /* a handle needs no answer of its own */
    }
    if (code != NVML_SUCCESS) {
        if (opens)
            store_close(place.gpu);
        return code;
    }
    *device = handle_of(place);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    if (users > 0 && (index >= gpu_count() || index >= MOST_GPUS))
        return NVML_ERROR_INVALID_ARGUMENT;
    return give_handle("nvmlDeviceGetHandleByIndex", (Place){(int)index, -1}, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    Place place = place_of(device);
    char path[64];
    if (users <= 0)
        return NVML_ERROR_UNINITIALIZED;
    if (place.gpu == NO_PLACE || place.mig >= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "gpus[%d].mig", place.gpu);
    if (index >= MOST_MIG || index >= store_length(store_member(path)))
        return NVML_ERROR_NOT_FOUND;
    return give_handle("nvmlDeviceGetMigDeviceHandleByIndex", (Place){place.gpu, (int)index}, mig);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    Place place = place_of(mig);
    if (users > 0 && place.mig < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    return give_handle("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", (Place){place.gpu, -1}, device);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    Answer answer;
    nvmlReturn_t code =
        is_mig ? ask(ABOUT(device, "nvmlDeviceIsMigDeviceHandle"), &answer) : NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS && code != NVML_ERROR_NOT_SUPPORTED)
        return code;
    *is_mig = place_of(device).mig >= 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    nvmlReturn_t code = give_number(ABOUT(device, "nvmlDeviceGetIndex"), index, sizeof *index);
    Place place = place_of(device);
    if (code != NVML_ERROR_NOT_SUPPORTED)
        return code;
    *index = (unsigned)(place.mig < 0 ? place.gpu : place.mig);
    return NVML_SUCCESS;
}

/* ---- handles by name ---- */

/* Whether this place's answer to `function` names the same as `wanted`. */
typedef bool Same(Answer answer, const char *wanted);

static bool same_text(Answer answer, const char *wanted) {
    const char *text = store_text(answer);
    return text && !strcasecmp(text, wanted);
}

/* Addresses are written with a domain of 4 or 8 digits, or with none. */
static bool same_address(Answer answer, const char *wanted) {
    const char *texts[] = {store_text(store_field(answer, "busId")), wanted};
    unsigned parts[2][3] = {0};
    for (int i = 0; i < 2; i++) {
        unsigned *at = parts[i], first, second, third;
        int read = texts[i] ? sscanf(texts[i], "%x:%x:%x", &first, &second, &third) : 0;
        if (read < 2)
            return false;
        at[0] = read == 3 ? first : 0;
        at[1] = read == 3 ? second : first;
        at[2] = read == 3 ? third : second;
    }
    return !memcmp(parts[0], parts[1], sizeof parts[0]);
}

static nvmlReturn_t find_handle(const char *function, const char *getter, Same *same, const char *wanted,
                                nvmlDevice_t *to) {
    if (users <= 0)
        return NVML_ERROR_UNINITIALIZED;
    if (!wanted || !to)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int gpu = 0; gpu < MOST_GPUS && gpu < gpu_count(); gpu++) {
        if (same != same_address) /* what else a GPU is called by is read from the open GPU */
            store_wake(gpu);
        for (int mig = -1; mig < MOST_MIG; mig++) {
            Place place = {gpu, mig};
            if (same(store_find(&QUESTION(getter, place)), wanted))
                return give_handle(function, place, to);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find_handle("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID", same_text, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find_handle("nvmlDeviceGetHandleBySerial", "nvmlDeviceGetSerial", same_text, serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
    return find_handle("nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetPciInfo", same_address, address, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(address, device);
}

/* ---- the machine ---- */

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    return give_text(ABOUT_MACHINE("nvmlSystemGetDriverVersion"), version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    return give_text(ABOUT_MACHINE("nvmlSystemGetNVMLVersion"), version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return give_number(ABOUT_MACHINE("nvmlSystemGetCudaDriverVersion"), version, sizeof *version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* NOT_FOUND is what NVML says of a process that is not there. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    nvmlReturn_t code = give_text(ABOUT_MACHINE("nvmlSystemGetProcessName", pid), name, length);
    return code == NVML_ERROR_NOT_SUPPORTED ? NVML_ERROR_NOT_FOUND : code;
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info, unsigned length) {
    static const Field fields[] = {FIELD(nvmlSystemDriverBranchInfo_v1_t, branch), END_OF_FIELDS};
    (void)length;
    return give_versioned(ABOUT_MACHINE("nvmlSystemGetDriverBranch"), info, nvmlSystemDriverBranchInfo_v1, fields);
}

nvmlReturn_t nvmlSystemGetConfComputeCapabilities(nvmlConfComputeSystemCaps_t *caps) {
    static const Field fields[] = {FIELD(nvmlConfComputeSystemCaps_t, cpuCaps),
                                   FIELD(nvmlConfComputeSystemCaps_t, gpusCaps), END_OF_FIELDS};
    return give_fields(ABOUT_MACHINE("nvmlSystemGetConfComputeCapabilities"), caps, fields);
}

nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state) {
    static const Field fields[] = {FIELD(nvmlConfComputeSystemState_t, environment),
                                   FIELD(nvmlConfComputeSystemState_t, ccFeature),
                                   FIELD(nvmlConfComputeSystemState_t, devToolsMode), END_OF_FIELDS};
    return give_fields(ABOUT_MACHINE("nvmlSystemGetConfComputeState"), state, fields);
}
