/* What a GPU tells in a struct: tables of members, and the getters that fill them. */
#include "nvml_answers.h"

#include <stdio.h>
#include <string.h>

#define STRUCT_AS(function, key, type, fields)                                                                         \
    nvmlReturn_t function(nvmlDevice_t device, type *out) { return give_fields(ABOUT(device, key), out, fields); }
#define STRUCT(function, type, fields) STRUCT_AS(function, #function, type, fields)
/* The struct begins with a version that the caller must have set. */
#define VERSIONED_AS(function, key, type, version, fields)                                                             \
    nvmlReturn_t function(nvmlDevice_t device, type *out) {                                                            \
        return give_versioned(ABOUT(device, key), out, version, fields);                                               \
    }
#define VERSIONED(function, type, version, fields) VERSIONED_AS(function, #function, type, version, fields)

/* ---- memory and use ---- */

static const Field memory[] = {FIELD(nvmlMemory_t, total), FIELD(nvmlMemory_t, free), FIELD(nvmlMemory_t, used),
                               END_OF_FIELDS};
static const Field memory_v2[] = {FIELD(nvmlMemory_v2_t, total), FIELD(nvmlMemory_v2_t, reserved),
                                  FIELD(nvmlMemory_v2_t, free), FIELD(nvmlMemory_v2_t, used), END_OF_FIELDS};
VERSIONED_AS(nvmlDeviceGetMemoryInfo_v2, "nvmlDeviceGetMemoryInfo", nvmlMemory_v2_t, nvmlMemory_v2, memory_v2)
STRUCT(nvmlDeviceGetConfComputeProtectedMemoryUsage, nvmlMemory_t, memory)

/* The first version of the call counts what the driver reserves as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    Answer answer;
    nvmlReturn_t code = out ? ask(ABOUT(device, "nvmlDeviceGetMemoryInfo"), &answer) : NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        code = put_fields(answer, out, memory);
    if (code == NVML_SUCCESS)
        out->used += (unsigned long long)store_integer(store_field(answer, "reserved"), 0);
    return code;
}

static const Field bar1[] = {FIELD(nvmlBAR1Memory_t, bar1Total), FIELD(nvmlBAR1Memory_t, bar1Free),
                             FIELD(nvmlBAR1Memory_t, bar1Used), END_OF_FIELDS};
STRUCT(nvmlDeviceGetBAR1MemoryInfo, nvmlBAR1Memory_t, bar1)

static const Field confidential[] = {FIELD(nvmlConfComputeMemSizeInfo_t, protectedMemSizeKib),
                                     FIELD(nvmlConfComputeMemSizeInfo_t, unprotectedMemSizeKib), END_OF_FIELDS};
STRUCT(nvmlDeviceGetConfComputeMemSizeInfo, nvmlConfComputeMemSizeInfo_t, confidential)

static const Field utilization[] = {FIELD(nvmlUtilization_t, gpu), FIELD(nvmlUtilization_t, memory), END_OF_FIELDS};
STRUCT(nvmlDeviceGetUtilizationRates, nvmlUtilization_t, utilization)

static const Field attributes[] = {
    FIELD(nvmlDeviceAttributes_t, multiprocessorCount),   FIELD(nvmlDeviceAttributes_t, sharedCopyEngineCount),
    FIELD(nvmlDeviceAttributes_t, sharedDecoderCount),    FIELD(nvmlDeviceAttributes_t, sharedEncoderCount),
    FIELD(nvmlDeviceAttributes_t, sharedJpegCount),       FIELD(nvmlDeviceAttributes_t, sharedOfaCount),
    FIELD(nvmlDeviceAttributes_t, gpuInstanceSliceCount), FIELD(nvmlDeviceAttributes_t, computeInstanceSliceCount),
    FIELD(nvmlDeviceAttributes_t, memorySizeMB),          END_OF_FIELDS};
STRUCT_AS(nvmlDeviceGetAttributes, "nvmlDeviceGetAttributes", nvmlDeviceAttributes_t, attributes)
STRUCT_AS(nvmlDeviceGetAttributes_v2, "nvmlDeviceGetAttributes", nvmlDeviceAttributes_t, attributes)

/* ---- errors ---- */

static const Field histogram[] = {
    FIELD(nvmlRowRemapperHistogramValues_t, max),     FIELD(nvmlRowRemapperHistogramValues_t, high),
    FIELD(nvmlRowRemapperHistogramValues_t, partial), FIELD(nvmlRowRemapperHistogramValues_t, low),
    FIELD(nvmlRowRemapperHistogramValues_t, none),    END_OF_FIELDS};
STRUCT(nvmlDeviceGetRowRemapperHistogram, nvmlRowRemapperHistogramValues_t, histogram)

static const Field sram[] = {FIELD(nvmlEccSramErrorStatus_v1_t, aggregateUncParity),
                             FIELD(nvmlEccSramErrorStatus_v1_t, aggregateUncSecDed),
                             FIELD(nvmlEccSramErrorStatus_v1_t, aggregateCor),
                             FIELD(nvmlEccSramErrorStatus_v1_t, volatileUncParity),
                             FIELD(nvmlEccSramErrorStatus_v1_t, volatileUncSecDed),
                             FIELD(nvmlEccSramErrorStatus_v1_t, volatileCor),
                             FIELD(nvmlEccSramErrorStatus_v1_t, aggregateUncBucketL2),
                             FIELD(nvmlEccSramErrorStatus_v1_t, aggregateUncBucketSm),
                             FIELD(nvmlEccSramErrorStatus_v1_t, aggregateUncBucketPcie),
                             FIELD(nvmlEccSramErrorStatus_v1_t, aggregateUncBucketMcu),
                             FIELD(nvmlEccSramErrorStatus_v1_t, aggregateUncBucketOther),
                             FIELD(nvmlEccSramErrorStatus_v1_t, bThresholdExceeded),
                             END_OF_FIELDS};
VERSIONED(nvmlDeviceGetSramEccErrorStatus, nvmlEccSramErrorStatus_t, nvmlEccSramErrorStatus_v1, sram)

static const Field ecc_by_location[] = {FIELD(nvmlEccErrorCounts_t, l1Cache), FIELD(nvmlEccErrorCounts_t, l2Cache),
                                        FIELD(nvmlEccErrorCounts_t, deviceMemory),
                                        FIELD(nvmlEccErrorCounts_t, registerFile), END_OF_FIELDS};
nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                            nvmlEccCounterType_t counter, nvmlEccErrorCounts_t *counts) {
    return give_fields(ABOUT(device, "nvmlDeviceGetDetailedEccErrors", type, counter), counts, ecc_by_location);
}

static const Field repair[] = {FIELD(nvmlRepairStatus_v1_t, bChannelRepairPending),
                               FIELD(nvmlRepairStatus_v1_t, bTpcRepairPending), END_OF_FIELDS};
VERSIONED(nvmlDeviceGetRepairStatus, nvmlRepairStatus_t, nvmlRepairStatus_v1, repair)

static const Field violation[] = {FIELD(nvmlViolationTime_t, referenceTime), FIELD(nvmlViolationTime_t, violationTime),
                                  END_OF_FIELDS};
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *time) {
    return give_fields(ABOUT(device, "nvmlDeviceGetViolationStatus", policy), time, violation);
}

/* ---- temperatures and fans ---- */

static const Field margin[] = {FIELD(nvmlMarginTemperature_v1_t, marginTemperature), END_OF_FIELDS};
VERSIONED(nvmlDeviceGetMarginTemperature, nvmlMarginTemperature_t, nvmlMarginTemperature_v1, margin)

static const Field temperature[] = {FIELD(nvmlTemperature_v1_t, temperature), END_OF_FIELDS};
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
    Question question = ABOUT(device, "nvmlDeviceGetTemperature", out ? out->sensorType : 0);
    return give_versioned(question, out, nvmlTemperature_v1, temperature);
}

static const Field fan[] = {FIELD(nvmlFanSpeedInfo_v1_t, speed), END_OF_FIELDS};
VERSIONED(nvmlDeviceGetFanSpeedRPM, nvmlFanSpeedInfo_t, nvmlFanSpeedInfo_v1, fan)

/* ---- PCI ---- */

/* Older versions of the struct end before busId, so that they get what comes before it. */
static const Field pci_legacy[] = {FIELD(nvmlPciInfo_t, busIdLegacy),
                                   FIELD(nvmlPciInfo_t, domain),
                                   FIELD(nvmlPciInfo_t, bus),
                                   FIELD(nvmlPciInfo_t, device),
                                   FIELD(nvmlPciInfo_t, pciDeviceId),
                                   FIELD(nvmlPciInfo_t, pciSubSystemId),
                                   END_OF_FIELDS};

/* The short address where the scenario gives only the long one: the domain's last four digits. */
static void shorten(Answer answer, nvmlPciInfo_t *pci) {
    const char *full = store_text(store_field(answer, "busId"));
    size_t length = full ? strlen(full) : 0;
    if (!pci->busIdLegacy[0] && length)
        snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%s", length > 12 ? full + length - 12 : full);
}

nvmlReturn_t put_pci(Answer answer, nvmlPciInfo_t *pci, bool legacy) {
    if (!store_is_object(answer))
        return WRONG_KIND;
    nvmlReturn_t code = put_fields(answer, pci, pci_legacy);
    shorten(answer, pci);
    if (legacy || code != NVML_SUCCESS)
        return code;
    memset(pci->busId, 0, sizeof pci->busId);
    Answer address = store_field(answer, "busId");
    return store_copy_text(address, pci->busId, sizeof pci->busId) ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, bool legacy) {
    Answer answer;
    nvmlReturn_t code = pci ? ask(ABOUT(device, "nvmlDeviceGetPciInfo"), &answer) : NVML_ERROR_INVALID_ARGUMENT;
    return code ? code : put_pci(answer, pci, legacy);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) { return pci_info(device, pci, true); }
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) { return pci_info(device, pci, true); }
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) { return pci_info(device, pci, false); }

static const Field pci_more[] = {FIELD(nvmlPciInfoExt_v1_t, domain),
                                 FIELD(nvmlPciInfoExt_v1_t, bus),
                                 FIELD(nvmlPciInfoExt_v1_t, device),
                                 FIELD(nvmlPciInfoExt_v1_t, pciDeviceId),
                                 FIELD(nvmlPciInfoExt_v1_t, pciSubSystemId),
                                 FIELD(nvmlPciInfoExt_v1_t, baseClass),
                                 FIELD(nvmlPciInfoExt_v1_t, subClass),
                                 FIELD(nvmlPciInfoExt_v1_t, busId),
                                 END_OF_FIELDS};
VERSIONED_AS(nvmlDeviceGetPciInfoExt, "nvmlDeviceGetPciInfo", nvmlPciInfoExt_t, nvmlPciInfoExt_v1, pci_more)

/* ---- platform ---- */

static const Field platform_v1[] = {FIELD(nvmlPlatformInfo_v1_t, ibGuid),
                                    FIELD(nvmlPlatformInfo_v1_t, rackGuid),
                                    FIELD(nvmlPlatformInfo_v1_t, chassisPhysicalSlotNumber),
                                    FIELD(nvmlPlatformInfo_v1_t, computeSlotIndex),
                                    FIELD(nvmlPlatformInfo_v1_t, nodeIndex),
                                    FIELD(nvmlPlatformInfo_v1_t, peerType),
                                    FIELD(nvmlPlatformInfo_v1_t, moduleId),
                                    END_OF_FIELDS};
static const Field platform_v2[] = {
    FIELD(nvmlPlatformInfo_v2_t, ibGuid),     FIELD(nvmlPlatformInfo_v2_t, chassisSerialNumber),
    FIELD(nvmlPlatformInfo_v2_t, slotNumber), FIELD(nvmlPlatformInfo_v2_t, trayIndex),
    FIELD(nvmlPlatformInfo_v2_t, hostId),     FIELD(nvmlPlatformInfo_v2_t, peerType),
    FIELD(nvmlPlatformInfo_v2_t, moduleId),   END_OF_FIELDS};
nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *info) {
    Question question = ABOUT(device, "nvmlDeviceGetPlatformInfo");
    if (info && info->version == nvmlPlatformInfo_v1)
        return give_versioned(question, info, nvmlPlatformInfo_v1, platform_v1);
    return give_versioned(question, info, nvmlPlatformInfo_v2, platform_v2);
}

static const Field c2c[] = {FIELD(nvmlC2cModeInfo_v1_t, isC2cEnabled), END_OF_FIELDS};
STRUCT(nvmlDeviceGetC2cModeInfoV, nvmlC2cModeInfo_v1_t, c2c)

static const Field addressing[] = {FIELD(nvmlDeviceAddressingMode_v1_t, value), END_OF_FIELDS};
VERSIONED(nvmlDeviceGetAddressingMode, nvmlDeviceAddressingMode_t, nvmlDeviceAddressingMode_v1, addressing)

static const Field capabilities[] = {FIELD(nvmlDeviceCapabilities_v1_t, capMask), END_OF_FIELDS};
VERSIONED(nvmlDeviceGetCapabilities, nvmlDeviceCapabilities_t, nvmlDeviceCapabilities_v1, capabilities)

static const Field identifier[] = {FIELD(nvmlPdi_v1_t, value), END_OF_FIELDS};
VERSIONED(nvmlDeviceGetPdi, nvmlPdi_t, nvmlPdi_v1, identifier)

/* ---- vGPU licence ---- */

static const Field licensable[] = {FIELD(nvmlGridLicensableFeatures_t, isGridLicenseSupported),
                                   FIELD(nvmlGridLicensableFeatures_t, licensableFeaturesCount), END_OF_FIELDS};
static const Field feature[] = {
    FIELD(nvmlGridLicensableFeature_t, featureCode),    FIELD(nvmlGridLicensableFeature_t, featureState),
    FIELD(nvmlGridLicensableFeature_t, licenseInfo),    FIELD(nvmlGridLicensableFeature_t, productName),
    FIELD(nvmlGridLicensableFeature_t, featureEnabled), END_OF_FIELDS};
static const Field expiry[] = {FIELD(nvmlGridLicenseExpiry_t, year),   FIELD(nvmlGridLicenseExpiry_t, month),
                               FIELD(nvmlGridLicenseExpiry_t, day),    FIELD(nvmlGridLicenseExpiry_t, hour),
                               FIELD(nvmlGridLicenseExpiry_t, min),    FIELD(nvmlGridLicenseExpiry_t, sec),
                               FIELD(nvmlGridLicenseExpiry_t, status), END_OF_FIELDS};

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out) {
    Question question = ABOUT(device, "nvmlDeviceGetGridLicensableFeatures");
    Answer answer;
    nvmlReturn_t code = out ? ask(question, &answer) : NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        code = put_fields(answer, out, licensable);
    for (size_t i = 0; i < NVML_GRID_LICENSE_FEATURE_MAX_COUNT && code == NVML_SUCCESS; i++) {
        Answer item = store_item(store_field(answer, "gridLicensableFeatures"), i);
        code = put_fields(item, &out->gridLicensableFeatures[i], feature);
        if (code == NVML_SUCCESS)
            code =
                put_fields(store_field(item, "licenseExpiry"), &out->gridLicensableFeatures[i].licenseExpiry, expiry);
    }
    if (code == NVML_SUCCESS && out->licensableFeaturesCount > NVML_GRID_LICENSE_FEATURE_MAX_COUNT)
        out->licensableFeaturesCount = NVML_GRID_LICENSE_FEATURE_MAX_COUNT; /* callers read as many from the array */
    return code;
}
