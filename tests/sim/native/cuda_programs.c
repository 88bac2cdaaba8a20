/* Programs of the simulated GPUs: PTX is kept by the names of its kernels, and what a kernel of ours does is done in C.
 *
 * A launch obeys the faults that name cuLaunchKernel, and those that name the kernel: {"call": "sweep", "gpu": 1, "do":
 * "hang"}. Text without a kernel is no program: its load fails, and the compiler's log says so.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the kernels of gpudoctor/kernels/child/driver do ---- */

typedef struct {
    uint64_t blocks, threads;
    void **arguments; /* where each of them lies */
} Launch;

static Address address(const Launch *launch, int at) { return *(Address *)launch->arguments[at]; }
static uint32_t number(const Launch *launch, int at) { return *(uint32_t *)launch->arguments[at]; }

static Result nothing(const Launch *launch) {
    (void)launch;
    return SUCCESS;
}

/* add_f32 and add_u32: (left, right, sum, count). */
static Result add(const Launch *launch, bool floats) {
    size_t count = number(launch, 3), size = count * sizeof(uint32_t);
    void *left = memory_at(address(launch, 0), size), *right = memory_at(address(launch, 1), size);
    void *sum = memory_at(address(launch, 2), size);
    if (!left || !right || !sum)
        return ILLEGAL_ADDRESS;
    if (count > launch->blocks * launch->threads)
        count = launch->blocks * launch->threads;
    for (size_t i = 0; i < count; i++)
        if (floats)
            ((float *)sum)[i] = ((float *)left)[i] + ((float *)right)[i];
        else
            ((uint32_t *)sum)[i] = ((uint32_t *)left)[i] + ((uint32_t *)right)[i];
    return SUCCESS;
}

static Result add_f32(const Launch *launch) { return add(launch, true); }
static Result add_u32(const Launch *launch) { return add(launch, false); }

/* (values, count, parts, whole) */
static Result sum_u32(const Launch *launch) {
    size_t count = number(launch, 1);
    const uint32_t *values = memory_at(address(launch, 0), count * sizeof *values);
    uint32_t *parts = memory_at(address(launch, 2), launch->blocks * sizeof *parts);
    uint32_t *whole = memory_at(address(launch, 3), sizeof *whole);
    if (!values || !parts || !whole)
        return ILLEGAL_ADDRESS;
    memset(parts, 0, launch->blocks * sizeof *parts);
    for (size_t i = 0; i < count; i++)
        parts[i / launch->threads % launch->blocks] += values[i];
    for (size_t block = 0; block < launch->blocks; block++)
        *whole += parts[block];
    return SUCCESS;
}

static uint64_t pattern(uint32_t kind, Address place, uint64_t step) {
    if (kind == 0)
        return 1ull << ((place / 8 + step) % 64);
    if (kind == 1)
        return place;
    uint64_t mixed = place + step + 0x9E3779B97F4A7C15;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    return mixed ^ mixed >> 31;
}

/* (memory, words, kind, step, act, report) */
static Result sweep(const Launch *launch) {
    Address first = address(launch, 0);
    size_t words = (size_t)address(launch, 1);
    uint32_t kind = number(launch, 2), act = number(launch, 4);
    uint64_t step = address(launch, 3), *memory = memory_at(first, words * sizeof *memory);
    uint64_t *report = memory_at(address(launch, 5), 3 * sizeof *report);
    if (!memory || !report)
        return ILLEGAL_ADDRESS;
    for (size_t i = 0; i < words; i++) {
        Address place = first + i * sizeof *memory;
        uint64_t want = pattern(kind, place, step), wrong = memory[i] ^ (act == 2 ? ~want : want);
        if (act && wrong) {
            report[0]++;
            report[1] = place < report[1] ? place : report[1];
            report[2] |= wrong;
        }
        if (act < 2)
            memory[i] = act ? ~want : want;
    }
    return SUCCESS;
}

typedef struct {
    const char *name;
    Result (*run)(const Launch *launch);
} Kernel;

static const Kernel kernels[] = {
    {"nothing", nothing}, {"add_f32", add_f32}, {"add_u32", add_u32}, {"sum_u32", sum_u32}, {"sweep", sweep},
};

/* ---- modules ---- */

#define ENTRY ".entry "
enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6 }; /* CUjit_option */

/* Give the compiler's words where the caller wants them. */
static void write_log(const char *words, unsigned count, const int options[], void *const values[]) {
    char *to = NULL;
    size_t size = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == ERROR_LOG)
            to = values[i];
        if (options[i] == ERROR_LOG_SIZE)
            size = (size_t)(uintptr_t)values[i];
    }
    if (to && size)
        snprintf(to, size, "%s", words);
}

API Result cuModuleLoadDataEx(char **module, const char *image, unsigned count, int options[], void *values[]) {
    Device device;
    Result code = ready_here("cuModuleLoadDataEx", &device);
    if (!code && (!module || !image))
        return INVALID_VALUE;
    if (code == INVALID_PTX || (!code && !strstr(image, ENTRY))) {
        write_log("ptxas application ptx input, line 1; fatal   : no kernel is defined", count, options, values);
        return INVALID_PTX;
    }
    *module = code ? NULL : strdup(image);
    return code;
}

/* A kernel of the module that is one of those above. */
API Result cuModuleGetFunction(const Kernel **function, const char *module, const char *name) {
    Result code = ready("cuModuleGetFunction", -1);
    if (code || !function || !module || !name)
        return code ? code : INVALID_VALUE;
    char wanted[128];
    snprintf(wanted, sizeof wanted, ENTRY "%s(", name);
    *function = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels && strstr(module, wanted); i++)
        if (!strcmp(kernels[i].name, name))
            *function = &kernels[i];
    return *function ? SUCCESS : NOT_FOUND;
}

Result failed_launch;

API Result cuLaunchKernel(const Kernel *kernel, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                          unsigned threads_y, unsigned threads_z, unsigned shared, void *stream, void **arguments,
                          void **extra) {
    (void)blocks_y, (void)blocks_z, (void)threads_y, (void)threads_z, (void)shared, (void)stream, (void)extra;
    Device device;
    Result code = ready_here("cuLaunchKernel", &device);
    if (code || !kernel || !blocks || !threads)
        return code ? code : INVALID_VALUE;
    code = ready(kernel->name, device);
    failed_launch = code ? code : kernel->run(&(Launch){blocks, threads, arguments});
    memory_written(device);
    return SUCCESS;
}
