/* What a GPU tells in one value or a few: the families of getters that differ in nothing but their names. */
#include "nvml_answers.h"

/* One value. */
#define VALUE_AS(function, key, type)                                                                                  \
    nvmlReturn_t function(nvmlDevice_t device, type *out) { return give_number(ABOUT(device, key), out, sizeof *out); }
#define VALUE(function, type) VALUE_AS(function, #function, type)

/* One value for each argument, or each pair or triple of them: sensor, clock, counter, location ... */
#define VALUE_1_AS(function, key, argument, type)                                                                      \
    nvmlReturn_t function(nvmlDevice_t device, argument a, type *out) {                                                \
        return give_number(ABOUT(device, key, a), out, sizeof *out);                                                   \
    }
#define VALUE_1(function, argument, type) VALUE_1_AS(function, #function, argument, type)
#define VALUE_2(function, argument, another, type)                                                                     \
    nvmlReturn_t function(nvmlDevice_t device, argument a, another b, type *out) {                                     \
        return give_number(ABOUT(device, #function, a, b), out, sizeof *out);                                          \
    }
#define VALUE_3(function, argument, another, third, type)                                                              \
    nvmlReturn_t function(nvmlDevice_t device, argument a, another b, third c, type *out) {                            \
        return give_number(ABOUT(device, #function, a, b, c), out, sizeof *out);                                       \
    }

/* Two values at once: now and after the next restart, least and most ... */
#define PAIR_AS(function, key, type)                                                                                   \
    nvmlReturn_t function(nvmlDevice_t device, type *one, type *other) {                                               \
        return give_numbers(ABOUT(device, key), (void *[]){one, other}, 2, sizeof(type));                              \
    }
#define PAIR(function, type) PAIR_AS(function, #function, type)

/* A text into a buffer of the caller's. */
#define WORDS(function)                                                                                                \
    nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned length) {                                           \
        return give_text(ABOUT(device, #function), out, length);                                                       \
    }

typedef unsigned long long Bits;

/* ---- what it is ---- */

WORDS(nvmlDeviceGetName)
WORDS(nvmlDeviceGetUUID)
WORDS(nvmlDeviceGetSerial)
WORDS(nvmlDeviceGetVbiosVersion)
WORDS(nvmlDeviceGetBoardPartNumber)
WORDS(nvmlDeviceGetInforomImageVersion)
VALUE(nvmlDeviceGetInforomConfigurationChecksum, unsigned)
VALUE(nvmlDeviceGetBrand, nvmlBrandType_t)
VALUE(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t)
VALUE(nvmlDeviceGetMinorNumber, unsigned)
VALUE(nvmlDeviceGetModuleId, unsigned)
VALUE(nvmlDeviceGetBoardId, unsigned)
VALUE(nvmlDeviceGetMultiGpuBoard, unsigned)
VALUE(nvmlDeviceGetNumGpuCores, unsigned)
VALUE(nvmlDeviceGetMemoryBusWidth, unsigned)
VALUE(nvmlDeviceGetBusType, nvmlBusType_t)
VALUE(nvmlDeviceGetIrqNum, unsigned)
VALUE(nvmlDeviceGetNumaNodeId, unsigned)
PAIR(nvmlDeviceGetCudaComputeCapability, int)

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object, char *out, unsigned length) {
    return give_text(ABOUT(device, "nvmlDeviceGetInforomVersion", object), out, length);
}

/* No length: the manual asks for a buffer of 80 bytes. */
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
    return give_text(ABOUT(device, "nvmlDeviceGetGspFirmwareVersion"), out, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}
PAIR(nvmlDeviceGetGspFirmwareMode, unsigned)

/* A call with no answer but its code: {"code": 14}, or 0 for a sound InfoROM. */
nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
    Answer answer;
    return ask(ABOUT(device, "nvmlDeviceValidateInforom"), &answer);
}

/* ---- modes ---- */

VALUE(nvmlDeviceGetDisplayMode, nvmlEnableState_t)
VALUE(nvmlDeviceGetDisplayActive, nvmlEnableState_t)
VALUE(nvmlDeviceGetPersistenceMode, nvmlEnableState_t)
VALUE(nvmlDeviceGetComputeMode, nvmlComputeMode_t)
VALUE(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t)
VALUE(nvmlDeviceGetHostVgpuMode, nvmlHostVgpuMode_t)
VALUE(nvmlDeviceGetAccountingMode, nvmlEnableState_t)
VALUE(nvmlDeviceGetAccountingBufferSize, unsigned)
VALUE_1(nvmlDeviceGetAPIRestriction, nvmlRestrictedAPI_t, nvmlEnableState_t)
PAIR(nvmlDeviceGetGpuOperationMode, nvmlGpuOperationMode_t)
PAIR_AS(nvmlDeviceGetDriverModel, "nvmlDeviceGetDriverModel", nvmlDriverModel_t)
PAIR_AS(nvmlDeviceGetDriverModel_v2, "nvmlDeviceGetDriverModel", nvmlDriverModel_t)
PAIR(nvmlDeviceGetMigMode, unsigned)
VALUE(nvmlDeviceGetMaxMigDeviceCount, unsigned)
VALUE(nvmlDeviceGetGpuInstanceId, unsigned)
VALUE(nvmlDeviceGetComputeInstanceId, unsigned)
VALUE_1(nvmlDeviceGetGpuInstanceRemainingCapacity, unsigned, unsigned)

/* ---- clocks and performance ---- */

VALUE_1(nvmlDeviceGetClockInfo, nvmlClockType_t, unsigned)
VALUE_1(nvmlDeviceGetMaxClockInfo, nvmlClockType_t, unsigned)
VALUE_1(nvmlDeviceGetApplicationsClock, nvmlClockType_t, unsigned)
VALUE_1(nvmlDeviceGetDefaultApplicationsClock, nvmlClockType_t, unsigned)
VALUE_1(nvmlDeviceGetMaxCustomerBoostClock, nvmlClockType_t, unsigned)
VALUE_2(nvmlDeviceGetClock, nvmlClockType_t, nvmlClockId_t, unsigned)
VALUE(nvmlDeviceGetAdaptiveClockInfoStatus, unsigned)
VALUE(nvmlDeviceGetPerformanceState, nvmlPstates_t)
VALUE_AS(nvmlDeviceGetPowerState, "nvmlDeviceGetPerformanceState", nvmlPstates_t)
VALUE(nvmlDeviceGetCurrentClocksEventReasons, Bits)
VALUE(nvmlDeviceGetSupportedClocksEventReasons, Bits)
VALUE_AS(nvmlDeviceGetCurrentClocksThrottleReasons, "nvmlDeviceGetCurrentClocksEventReasons", Bits)
VALUE_AS(nvmlDeviceGetSupportedClocksThrottleReasons, "nvmlDeviceGetSupportedClocksEventReasons", Bits)
VALUE(nvmlDeviceGetSupportedEventTypes, Bits)
VALUE(nvmlDeviceGetGpcClkVfOffset, int)
VALUE(nvmlDeviceGetMemClkVfOffset, int)
PAIR(nvmlDeviceGetGpcClkMinMaxVfOffset, int)
PAIR(nvmlDeviceGetMemClkMinMaxVfOffset, int)
PAIR(nvmlDeviceGetAutoBoostedClocksEnabled, nvmlEnableState_t)
PAIR(nvmlDeviceGetEncoderUtilization, unsigned)
PAIR(nvmlDeviceGetDecoderUtilization, unsigned)
PAIR(nvmlDeviceGetJpgUtilization, unsigned)
PAIR(nvmlDeviceGetOfaUtilization, unsigned)
VALUE_1(nvmlDeviceGetEncoderCapacity, nvmlEncoderType_t, unsigned)

nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, nvmlClockType_t type, nvmlPstates_t pstate,
                                              unsigned *least, unsigned *most) {
    Question question = ABOUT(device, "nvmlDeviceGetMinMaxClockOfPState", type, pstate);
    return give_numbers(question, (void *[]){least, most}, 2, sizeof *least);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *clocks) {
    return give_list(ABOUT(device, "nvmlDeviceGetSupportedMemoryClocks"), count, clocks, sizeof *clocks, NULL);
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory, unsigned *count,
                                                  unsigned *clocks) {
    Question question = ABOUT(device, "nvmlDeviceGetSupportedGraphicsClocks", memory);
    return give_list(question, count, clocks, sizeof *clocks, NULL);
}

/* `size` is in bytes; what the scenario does not fill is P-state "unknown". */
nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, nvmlPstates_t *states, unsigned size) {
    unsigned room = size / sizeof *states, count = room;
    for (unsigned i = 0; states && i < room; i++)
        states[i] = NVML_PSTATE_UNKNOWN;
    return give_list(ABOUT(device, "nvmlDeviceGetSupportedPerformanceStates"), &count, states, sizeof *states, NULL);
}

/* ---- heat and power ---- */

VALUE_1(nvmlDeviceGetTemperature, nvmlTemperatureSensors_t, unsigned)
VALUE_1(nvmlDeviceGetTemperatureThreshold, nvmlTemperatureThresholds_t, unsigned)
VALUE(nvmlDeviceGetNumFans, unsigned)
VALUE(nvmlDeviceGetFanSpeed, unsigned)
VALUE_1_AS(nvmlDeviceGetFanSpeed_v2, "nvmlDeviceGetFanSpeed", unsigned, unsigned)
VALUE_1(nvmlDeviceGetTargetFanSpeed, unsigned, unsigned)
PAIR(nvmlDeviceGetMinMaxFanSpeed, unsigned)
VALUE_1_AS(nvmlDeviceGetFanControlPolicy_v2, "nvmlDeviceGetFanControlPolicy", unsigned, nvmlFanControlPolicy_t)
VALUE(nvmlDeviceGetPowerUsage, unsigned)
VALUE(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t)
VALUE(nvmlDeviceGetPowerManagementLimit, unsigned)
VALUE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned)
VALUE(nvmlDeviceGetEnforcedPowerLimit, unsigned)
VALUE(nvmlDeviceGetPowerSource, nvmlPowerSource_t)
VALUE(nvmlDeviceGetTotalEnergyConsumption, Bits)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, unsigned)

/* ---- errors of the memory ---- */

PAIR(nvmlDeviceGetEccMode, nvmlEnableState_t)
nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    return give_numbers(ABOUT(device, "nvmlDeviceGetDefaultEccMode"), (void *[]){mode}, 1, sizeof *mode);
}
VALUE_2(nvmlDeviceGetTotalEccErrors, nvmlMemoryErrorType_t, nvmlEccCounterType_t, Bits)
VALUE_3(nvmlDeviceGetMemoryErrorCounter, nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlMemoryLocation_t, Bits)
VALUE(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t)

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                       unsigned *pending, unsigned *failed) {
    void *const to[] = {corrected, uncorrected, pending, failed};
    return give_numbers(ABOUT(device, "nvmlDeviceGetRemappedRows"), to, 4, sizeof *failed);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned *count,
                                       Bits *pages) {
    return give_list(ABOUT(device, "nvmlDeviceGetRetiredPages", cause), count, pages, sizeof *pages, NULL);
}

/* The scenario holds addresses alone: every page was retired at time 0. */
nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned *count,
                                          Bits *pages, Bits *times) {
    nvmlReturn_t code = nvmlDeviceGetRetiredPages(device, cause, count, pages);
    for (unsigned i = 0; code == NVML_SUCCESS && times && i < *count; i++)
        times[i] = 0;
    return code;
}

/* ---- PCI Express ---- */

VALUE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned)
VALUE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned)
VALUE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned)
VALUE(nvmlDeviceGetCurrPcieLinkWidth, unsigned)
VALUE(nvmlDeviceGetMaxPcieLinkWidth, unsigned)
VALUE(nvmlDeviceGetPcieLinkMaxSpeed, unsigned)
VALUE(nvmlDeviceGetPcieSpeed, unsigned)
VALUE(nvmlDeviceGetPcieReplayCounter, unsigned)
VALUE_1(nvmlDeviceGetPcieThroughput, nvmlPcieUtilCounter_t, unsigned)
