/* Who uses a GPU: running processes in the three layouts of the struct, details, and utilization by process. */
#include "nvml_answers.h"

/* Memory and MIG instances are all ones where they are not available, which is what the scenario leaves out. */
#define PROCESS(type) FIELD(type, pid), FIELD_ELSE(type, usedGpuMemory, NOT_AVAILABLE)
#define INSTANCES(type)                                                                                                \
    FIELD_ELSE(type, gpuInstanceId, NOT_AVAILABLE), FIELD_ELSE(type, computeInstanceId, NOT_AVAILABLE)

static const Field process_v1[] = {PROCESS(nvmlProcessInfo_v1_t), END_OF_FIELDS};
static const Field process_v2[] = {PROCESS(nvmlProcessInfo_v2_t), INSTANCES(nvmlProcessInfo_v2_t), END_OF_FIELDS};
static const Field process_v3[] = {PROCESS(nvmlProcessInfo_t), INSTANCES(nvmlProcessInfo_t), END_OF_FIELDS};

#define PROCESSES(key)                                                                                                 \
    nvmlReturn_t key(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *infos) {                              \
        return give_list(ABOUT(device, #key), count, infos, sizeof *infos, process_v1);                                \
    }                                                                                                                  \
    nvmlReturn_t key##_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *infos) {                         \
        return give_list(ABOUT(device, #key), count, infos, sizeof *infos, process_v2);                                \
    }                                                                                                                  \
    nvmlReturn_t key##_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) {                            \
        return give_list(ABOUT(device, #key), count, infos, sizeof *infos, process_v3);                                \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)

static const Field detail[] = {PROCESS(nvmlProcessDetail_v1_t), INSTANCES(nvmlProcessDetail_v1_t),
                               FIELD_ELSE(nvmlProcessDetail_v1_t, usedGpuCcProtectedMemory, NOT_AVAILABLE),
                               END_OF_FIELDS};
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    if (!list)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (list->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    Question question = ABOUT(device, "nvmlDeviceGetRunningProcessDetailList", list->mode);
    return give_list(question, &list->numProcArrayEntries, list->procArray, sizeof *list->procArray, detail);
}

static const Field sample[] = {FIELD(nvmlProcessUtilizationSample_t, pid),
                               FIELD(nvmlProcessUtilizationSample_t, timeStamp),
                               FIELD(nvmlProcessUtilizationSample_t, smUtil),
                               FIELD(nvmlProcessUtilizationSample_t, memUtil),
                               FIELD(nvmlProcessUtilizationSample_t, encUtil),
                               FIELD(nvmlProcessUtilizationSample_t, decUtil),
                               END_OF_FIELDS};
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned *count, unsigned long long since) {
    (void)since; /* every sample is news */
    return give_list(ABOUT(device, "nvmlDeviceGetProcessUtilization"), count, samples, sizeof *samples, sample);
}
