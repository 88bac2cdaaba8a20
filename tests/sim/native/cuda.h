/* What the parts of the simulated CUDA driver library share. */
#ifndef CUDA_H
#define CUDA_H

#include <stdint.h>

#include "store.h"

typedef int Result; /* CUresult */
typedef int Device; /* CUdevice */
typedef uint64_t Address; /* CUdeviceptr */
typedef struct context *Context;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    STUB_LIBRARY = 34,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
};

#define API __attribute__((visibility("default")))
#define MOST_DEVICES 64

/* What must hold before any call is answered: a real library, initialised, a device that exists (`device` < 0: none is
 * meant), no fault. */
Result ready(const char *function, Device device);
/* The same for a call about the device of the current context, which it tells. */
Result ready_here(const char *function, Device *device);
/* Ask about a device: faults, mask and initialisation first. */
Result ask(Question question, Device device, Answer *answer);
/* The scenario's answer about a device, faults left aside; NULL where it has none. */
Answer told(const char *name, Device device);

/* The bytes behind an address of a device, NULL where they are not all allocated. */
void *memory_at(Address address, size_t size);
/* Memory has been written: bits that the scenario calls stuck are as they are stuck. */
void memory_written(Device device);

/* What a launch went wrong with: from then on the answer to every call about the context. 0: all is well. */
extern Result failed_launch;

#endif
