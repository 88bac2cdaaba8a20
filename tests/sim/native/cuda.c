/* A CUDA driver library that answers from a scenario: libcuda.so.1 without a GPU.
 *
 * It answers what a program asks before its first kernel: initialisation, versions, devices, attributes, peers, primary
 * contexts, errors in words, entry points by name; and it runs the kernels that gpudoctor brings (see cuda_memory.c and
 * cuda_programs.c). As the real one it obeys CUDA_VISIBLE_DEVICES, refuses
 * everything before cuInit, and as a stub (cuInit: 34) refuses everything. What a scenario does not hold is
 * CUDA_ERROR_NOT_SUPPORTED, and CUDA_ERROR_INVALID_VALUE for an attribute, as of a driver that does not know it.
 *
 * Keys of the section "cuda": the names of the functions without ABI version, arguments behind the device in parentheses:
 *     "system": {"cuInit": 0, "cuDriverGetVersion": 13000, "cuDeviceGetCount": 8}
 *     "every":  {"cuDeviceGetName": "..", "cuDeviceTotalMem": 85028765696, "cuDeviceGetAttribute(75)": 9,
 *                "cuDeviceGetUuid": "32 hex digits", "cuDeviceGetPCIBusId": "0000:1A:00.0", "cuDeviceCanAccessPeer": 1}
 * A device is a GPU of "gpus" by its place there, whatever number the mask gives it in this process.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned char bytes[16];
} Uuid;

const char *const STORE_SECTION = "cuda";

/* ---- what is visible ---- */

static int visible[MOST_DEVICES]; /* place in the scenario's "gpus" of each device */
static int visible_count;
static atomic_bool initialised;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static int present(void) {
    Answer count = store_find(&QUESTION("cuDeviceGetCount", THE_MACHINE));
    long long wanted = store_integer(count, (long long)store_length(store_member("gpus")));
    return wanted < 0 ? 0 : wanted > MOST_DEVICES ? MOST_DEVICES : (int)wanted;
}

/* The GPU that one entry of the mask names: a number, or "GPU-" ("MIG-" for a MIG device, which its name gives away) and
 * the head of a UUID; -1 for none. */
static int named(const char *entry, size_t length) {
    char *end, digits[40] = "";
    while (length && *entry == ' ')
        entry++, length--;
    while (length && entry[length - 1] == ' ')
        length--;
    if (length && strspn(entry, "0123456789") >= length) {
        long number = strtol(entry, &end, 10);
        return number < present() ? (int)number : -1;
    }
    bool slice = length > 4 && !strncmp(entry, "MIG-", 4);
    if (length <= 4 || (!slice && strncmp(entry, "GPU-", 4)))
        return -1;
    size_t kept = 0;
    for (size_t i = 4; i < length && kept < sizeof digits - 1; i++)
        if (entry[i] != '-')
            digits[kept++] = entry[i];
    int found = -1;
    for (int gpu = 0; gpu < present(); gpu++) {
        Place where = {gpu, -1};
        const char *uuid = store_text(store_find(&QUESTION("cuDeviceGetUuid", where)));
        const char *name = store_text(store_find(&QUESTION("cuDeviceGetName", where)));
        bool is_slice = name && strstr(name, " MIG ");
        if (uuid && slice == is_slice && !strncasecmp(uuid, digits, kept)) {
            if (found >= 0)
                return -1; /* the head of two */
            found = gpu;
        }
    }
    return found;
}

/* Read CUDA_VISIBLE_DEVICES from left to right until an entry names no GPU; a GPU named twice leaves none at all. */
static void apply_mask(void) {
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    visible_count = 0;
    if (!mask) {
        while (visible_count < present()) {
            visible[visible_count] = visible_count;
            visible_count++;
        }
        return;
    }
    for (;;) {
        size_t length = strcspn(mask, ",");
        int gpu = named(mask, length);
        for (int i = 0; i < visible_count; i++)
            if (gpu >= 0 && visible[i] == gpu) {
                visible_count = 0;
                return;
            }
        if (gpu < 0 || visible_count == MOST_DEVICES)
            return;
        visible[visible_count++] = gpu;
        if (!mask[length])
            return;
        mask += length + 1;
    }
}

/* ---- asking ---- */

#define DRIVER_NOT_LOADED 9 /* in NVML's section */

static int promised(void) { /* the code that cuInit has in the scenario */
    Answer shorthand = store_member("init"), full = store_member("system.cuInit");
    Answer said = shorthand ? shorthand : full;
    int code = store_code(said);
    return code ? code : (int)store_integer(said, SUCCESS);
}

static bool is_stub(void) {
    return store_ready() && promised() == STUB_LIBRARY;
}

static Place place(Device device) {
    return (Place){device >= 0 && device < visible_count ? visible[device] : -1, -1};
}

Result ready(const char *function, Device device) {
    Question question = QUESTION(function, device < 0 ? THE_MACHINE : place(device));
    if (is_stub())
        return STUB_LIBRARY;
    if (!initialised)
        return NOT_INITIALIZED;
    return store_obey(&question);
}

static Result known(Device device) {
    return device >= 0 && device < visible_count ? SUCCESS : INVALID_DEVICE;
}

Result ask(Question question, Device device, Answer *answer) {
    *answer = NULL;
    if (is_stub())
        return STUB_LIBRARY;
    if (!initialised)
        return NOT_INITIALIZED;
    if (known(device))
        return INVALID_DEVICE;
    question.where = place(device);
    Result code = store_ask(&question, answer);
    return code == STORE_NO_ANSWER ? NOT_SUPPORTED : code;
}

Answer told(const char *name, Device device) { return store_find(&QUESTION(name, place(device))); }

/* ---- start ---- */

/* Open every visible device: the GPU of NVML's section at the same address wakes. */
static void wake(void) {
    for (Device device = 0; device < visible_count; device++) {
        unsigned at[3], domain, bus, number;
        const char *address = store_text(store_find(&QUESTION("cuDeviceGetPCIBusId", place(device))));
        if (!address || sscanf(address, "%x:%x:%x", &domain, &bus, &number) != 3)
            continue;
        size_t count = store_length(store_at("nvml.gpus"));
        for (size_t gpu = 0; gpu < count; gpu++) {
            static const char *const parts[] = {"domain", "bus", "device"};
            for (int part = 0; part < 3; part++) {
                char path[LONGEST_PATH];
                snprintf(path, sizeof path, "nvml.gpus[%zu].nvmlDeviceGetPciInfo.%s", gpu, parts[part]);
                at[part] = (unsigned)store_integer(store_at(path), -1);
            }
            if (at[0] == domain && at[1] == bus && at[2] == number)
                store_wake((int)gpu);
        }
    }
}

API Result cuInit(unsigned flags) {
    Answer answer;
    if (is_stub())
        return STUB_LIBRARY;
    Result code = store_ask(&QUESTION("cuInit", THE_MACHINE), &answer);
    if (code > 0)
        return code;
    if (store_integer(store_at("nvml.init"), SUCCESS) == DRIVER_NOT_LOADED)
        store_load_module();
    if (promised())
        return promised();
    if (flags)
        return INVALID_VALUE;
    pthread_mutex_lock(&starting);
    if (!initialised)
        apply_mask(), wake();
    initialised = visible_count > 0;
    pthread_mutex_unlock(&starting);
    return initialised ? SUCCESS : NO_DEVICE;
}

API Result cuDriverGetVersion(int *version) {
    Answer answer;
    if (is_stub())
        return STUB_LIBRARY;
    if (!version)
        return INVALID_VALUE;
    Result code = store_ask(&QUESTION("cuDriverGetVersion", THE_MACHINE), &answer);
    if (code > 0)
        return code;
    *version = (int)store_integer(answer, 0);
    return SUCCESS;
}

/* ---- devices ---- */

API Result cuDeviceGetCount(int *count) {
    Result code = ready("cuDeviceGetCount", -1);
    if (code || !count)
        return code ? code : INVALID_VALUE;
    *count = visible_count;
    return SUCCESS;
}

API Result cuDeviceGet(Device *device, int ordinal) {
    Result code = ready("cuDeviceGet", ordinal);
    if (code || !device)
        return code ? code : INVALID_VALUE;
    if (known(ordinal))
        return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

/* Copy as much of a text as fits, with its NUL. */
static Result copy(Answer text, char *to, int size) {
    const char *from = store_text(text);
    if (!to || size <= 0 || !from)
        return INVALID_VALUE;
    snprintf(to, (size_t)size, "%s", from);
    return SUCCESS;
}

API Result cuDeviceGetName(char *name, int size, Device device) {
    Answer answer;
    Result code = ask(QUESTION("cuDeviceGetName", THE_MACHINE), device, &answer);
    return code ? code : copy(answer, name, size);
}

API Result cuDeviceGetPCIBusId(char *address, int size, Device device) {
    Answer answer;
    Result code = ask(QUESTION("cuDeviceGetPCIBusId", THE_MACHINE), device, &answer);
    return code ? code : copy(answer, address, size);
}

API Result cuDeviceGetByPCIBusId(Device *device, const char *address) {
    Result code = ready("cuDeviceGetByPCIBusId", -1);
    if (code || !device || !address)
        return code ? code : INVALID_VALUE;
    for (Device each = 0; each < visible_count; each++) {
        const char *known_as = store_text(store_find(&QUESTION("cuDeviceGetPCIBusId", place(each))));
        if (known_as && !strcasecmp(known_as, address)) {
            *device = each;
            return SUCCESS;
        }
    }
    return INVALID_DEVICE;
}

API Result cuDeviceGetUuid(Uuid *uuid, Device device) {
    Answer answer;
    Result code = ask(QUESTION("cuDeviceGetUuid", THE_MACHINE), device, &answer);
    if (code || !uuid)
        return code ? code : INVALID_VALUE;
    store_copy_hex(answer, uuid, sizeof *uuid);
    return SUCCESS;
}

API Result cuDeviceGetUuid_v2(Uuid *uuid, Device device) { return cuDeviceGetUuid(uuid, device); }

API Result cuDeviceTotalMem_v2(size_t *bytes, Device device) {
    Answer answer;
    Result code = ask(QUESTION("cuDeviceTotalMem", THE_MACHINE), device, &answer);
    if (code || !bytes)
        return code ? code : INVALID_VALUE;
    *bytes = (size_t)store_integer(answer, 0);
    return SUCCESS;
}

API Result cuDeviceGetAttribute(int *value, int attribute, Device device) {
    Answer answer;
    Result code = ask(QUESTION("cuDeviceGetAttribute", THE_MACHINE, attribute), device, &answer);
    if (code || !value)
        return code && code != NOT_SUPPORTED ? code : INVALID_VALUE;
    *value = (int)store_integer(answer, 0);
    return SUCCESS;
}

API Result cuDeviceComputeCapability(int *major, int *minor, Device device) {
    Result code = cuDeviceGetAttribute(major, 75, device);
    return code ? code : cuDeviceGetAttribute(minor, 76, device);
}

API Result cuDeviceCanAccessPeer(int *can, Device device, Device peer) {
    Answer answer;
    if (initialised && known(peer))
        return INVALID_DEVICE;
    Result code = ask(QUESTION("cuDeviceCanAccessPeer", THE_MACHINE, place(peer).gpu), device, &answer);
    if (code || !can)
        return code ? code : INVALID_VALUE;
    *can = device != peer && store_integer(answer, 0) != 0;
    return SUCCESS;
}

API Result cuDeviceGetP2PAttribute(int *value, int attribute, Device device, Device peer) {
    Answer answer;
    if (initialised && known(peer))
        return INVALID_DEVICE;
    Result code = ask(QUESTION("cuDeviceGetP2PAttribute", THE_MACHINE, attribute, place(peer).gpu), device, &answer);
    if (code || !value)
        return code ? code : INVALID_VALUE;
    *value = (int)store_integer(answer, 0);
    return SUCCESS;
}

/* ---- primary contexts: one per device, counted ---- */

struct context {
    Device device;
    atomic_int uses;
};

static struct context primary[MOST_DEVICES];
static _Thread_local Context current;

API Result cuDevicePrimaryCtxRetain(Context *context, Device device) {
    Result code = ready("cuDevicePrimaryCtxRetain", device);
    if (code || !context)
        return code ? code : INVALID_VALUE;
    if (known(device))
        return INVALID_DEVICE;
    primary[device].device = device;
    primary[device].uses++;
    *context = &primary[device];
    return SUCCESS;
}

API Result cuDevicePrimaryCtxRelease_v2(Device device) {
    Result code = ready("cuDevicePrimaryCtxRelease", device);
    if (code || known(device))
        return code ? code : INVALID_DEVICE;
    if (primary[device].uses <= 0)
        return INVALID_CONTEXT;
    primary[device].uses--;
    return SUCCESS;
}

API Result cuDevicePrimaryCtxGetState(Device device, unsigned *flags, int *active) {
    Result code = ready("cuDevicePrimaryCtxGetState", device);
    if (code || known(device))
        return code ? code : INVALID_DEVICE;
    if (!flags || !active)
        return INVALID_VALUE;
    *flags = 0;
    *active = primary[device].uses > 0;
    return SUCCESS;
}

Result ready_here(const char *function, Device *device) {
    Result code = current ? ready(function, current->device) : ready(function, -1);
    *device = current ? current->device : 0;
    return code ? code : current ? failed_launch : INVALID_CONTEXT;
}

API Result cuCtxSetCurrent(Context context) {
    Result code = ready("cuCtxSetCurrent", -1);
    current = code ? current : context;
    return code;
}

API Result cuCtxGetCurrent(Context *context) {
    Result code = ready("cuCtxGetCurrent", -1);
    if (code || !context)
        return code ? code : INVALID_VALUE;
    *context = current;
    return SUCCESS;
}

API Result cuCtxGetDevice(Device *device) {
    Result code = ready("cuCtxGetDevice", -1);
    if (code || !device)
        return code ? code : INVALID_VALUE;
    if (!current)
        return INVALID_CONTEXT;
    *device = current->device;
    return SUCCESS;
}

API Result cuCtxSynchronize(void) {
    Device device;
    Result code = ready_here("cuCtxSynchronize", &device);
    return code;
}

/* ---- errors in words ---- */

static const struct {
    Result code;
    const char *name, *words;
} errors[] = {
#define CUDA_WORDS(code, name, words) {code, name, words},
#include "cuda_words.inc"
};

/* The name or the words of a code; nothing, and INVALID_VALUE, for one that it does not know. */
static Result tell(Result code, bool name, const char **text) {
    if (is_stub())
        return STUB_LIBRARY; /* a real stub leaves the pointer as it was, too */
    if (!text)
        return INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            *text = name ? errors[i].name : errors[i].words;
    return *text ? SUCCESS : INVALID_VALUE;
}

API Result cuGetErrorName(Result code, const char **name) { return tell(code, true, name); }
API Result cuGetErrorString(Result code, const char **words) { return tell(code, false, words); }

/* ---- entry points by name ---- */

API Result cuMemGetInfo_v2(size_t *, size_t *), cuMemAlloc_v2(Address *, size_t), cuMemFree_v2(Address);
API Result cuMemcpyHtoD_v2(Address, const void *, size_t), cuMemcpyDtoH_v2(void *, Address, size_t);
API Result cuModuleLoadDataEx(), cuModuleGetFunction(), cuLaunchKernel();

/* Private tables that the CUDA runtime asks for: without them a healthy libcudart answers 500. */
API Result cuGetExportTable(const void **entries, const void *id) {
    (void)id;
    if (entries)
        *entries = NULL;
    return is_stub() ? STUB_LIBRARY : NOT_FOUND;
}

API Result cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
API Result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

#define ENTRY(name) {#name, (void (*)(void))(name)}

/* By name; of several ABI versions of one function the newest comes first. */
static const struct {
    const char *name;
    void (*function)(void);
} entry_points[] = {
    ENTRY(cuInit),
    ENTRY(cuDriverGetVersion),
    ENTRY(cuDeviceGetCount),
    ENTRY(cuDeviceGet),
    ENTRY(cuDeviceGetName),
    ENTRY(cuDeviceGetPCIBusId),
    ENTRY(cuDeviceGetByPCIBusId),
    ENTRY(cuDeviceGetUuid_v2),
    ENTRY(cuDeviceGetUuid),
    ENTRY(cuDeviceTotalMem_v2),
    ENTRY(cuDeviceGetAttribute),
    ENTRY(cuDeviceComputeCapability),
    ENTRY(cuDeviceCanAccessPeer),
    ENTRY(cuDeviceGetP2PAttribute),
    ENTRY(cuDevicePrimaryCtxRetain),
    ENTRY(cuDevicePrimaryCtxRelease_v2),
    ENTRY(cuDevicePrimaryCtxGetState),
    ENTRY(cuCtxSetCurrent),
    ENTRY(cuCtxGetCurrent),
    ENTRY(cuCtxGetDevice),
    ENTRY(cuCtxSynchronize),
    ENTRY(cuMemGetInfo_v2),
    ENTRY(cuMemAlloc_v2),
    ENTRY(cuMemFree_v2),
    ENTRY(cuMemcpyHtoD_v2),
    ENTRY(cuMemcpyDtoH_v2),
    ENTRY(cuModuleLoadDataEx),
    ENTRY(cuModuleGetFunction),
    ENTRY(cuLaunchKernel),
    ENTRY(cuGetErrorName),
    ENTRY(cuGetErrorString),
    ENTRY(cuGetExportTable),
    ENTRY(cuGetProcAddress_v2),
    ENTRY(cuGetProcAddress),
};

#define CUDA_12 12000

/* `version` is the CUDA that the program was written for: from 12.0 on cuGetProcAddress itself takes five arguments. */
API Result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    enum { FOUND, NO_SUCH_SYMBOL } found = NO_SUCH_SYMBOL;
    (void)flags;
    if (is_stub())
        return STUB_LIBRARY;
    if (!symbol || !function)
        return INVALID_VALUE;
    *function = NULL;
    bool old = version < CUDA_12 && !strcmp(symbol, "cuGetProcAddress");
    size_t length = strlen(symbol);
    for (size_t i = 0; i < sizeof entry_points / sizeof *entry_points && found != FOUND; i++) {
        const char *name = entry_points[i].name, *rest = name + length;
        if (strncmp(name, symbol, length) || (*rest && (old || strncmp(rest, "_v", 2))))
            continue;
        memcpy(function, &entry_points[i].function, sizeof *function);
        found = FOUND;
    }
    if (status)
        *status = (int)found;
    return found == FOUND ? SUCCESS : NOT_FOUND;
}

API Result cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
