/* The memory of the simulated GPUs: host memory behind addresses that are the same in every run.
 *
 * Keys of the section "cuda", of a device:
 *     "cuMemGetInfo": [free, total]    before anything is allocated; by default all of cuDeviceTotalMem is free
 *     "cuMemAlloc": 16777216           bytes that it really gives, 1.5 MiB where the scenario does not say
 *     "stuck": [offset, bit, value]    of the 64-bit word so many bytes behind the first address, a bit that never changes
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ADDRESS 0x7f0000000000ull
#define APART (1ull << 40) /* between the memories of two devices */
#define GIVEN_BY_DEFAULT (3 << 19)
#define ALIGNED 512
#define MOST_BLOCKS 256

typedef struct {
    size_t offset, size;
} Block;

static struct memory {
    unsigned char *bytes;
    size_t size, used;
    Block blocks[MOST_BLOCKS]; /* in order */
    int count;
} memories[MOST_DEVICES];

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

static Address base(Device device) { return FIRST_ADDRESS + APART * (Address)device; }

static struct memory *memory_of(Address address) {
    Address device = (address - FIRST_ADDRESS) / APART;
    return address >= FIRST_ADDRESS && device < MOST_DEVICES ? &memories[device] : NULL;
}

/* Room for so many bytes: the first gap that is large enough. */
static Result allocate(Device device, size_t size, Address *address) {
    struct memory *memory = &memories[device];
    if (!memory->bytes) {
        memory->size = (size_t)store_integer(told("cuMemAlloc", device), GIVEN_BY_DEFAULT);
        memory->bytes = calloc(1, memory->size);
    }
    size = (size + ALIGNED - 1) / ALIGNED * ALIGNED;
    size_t offset = 0;
    int at = 0;
    while (at < memory->count && memory->blocks[at].offset - offset < size) {
        offset = memory->blocks[at].offset + memory->blocks[at].size;
        at++;
    }
    if (!memory->bytes || memory->count == MOST_BLOCKS || size > memory->size || offset > memory->size - size)
        return OUT_OF_MEMORY;
    memmove(&memory->blocks[at + 1], &memory->blocks[at], (size_t)(memory->count - at) * sizeof(Block));
    memory->blocks[at] = (Block){offset, size};
    memory->count++;
    memory->used += size;
    *address = base(device) + offset;
    return SUCCESS;
}

/* The free and the whole memory of a device, in bytes. */
static Result room(Device device, size_t *free_bytes, size_t *whole) {
    Answer answer;
    Result code = ask(QUESTION("cuMemGetInfo", THE_MACHINE), device, &answer);
    if (code && code != NOT_SUPPORTED)
        return code;
    if (store_length(answer) == 2) {
        *free_bytes = (size_t)store_integer(store_item(answer, 0), 0);
        *whole = (size_t)store_integer(store_item(answer, 1), 0);
    } else {
        *free_bytes = *whole = (size_t)store_integer(told("cuDeviceTotalMem", device), 0);
    }
    size_t used = memories[device].used;
    *free_bytes = *free_bytes > used ? *free_bytes - used : 0;
    return SUCCESS;
}

API Result cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    Device device;
    Result code = ready_here("cuMemGetInfo", &device);
    if (code || !free_bytes || !total)
        return code ? code : INVALID_VALUE;
    return room(device, free_bytes, total);
}

API Result cuMemAlloc_v2(Address *address, size_t size) {
    Device device;
    Result code = ready_here("cuMemAlloc", &device);
    if (code || !address || !size)
        return code ? code : INVALID_VALUE;
    pthread_mutex_lock(&changing);
    size_t free_bytes = 0, whole = 0;
    code = room(device, &free_bytes, &whole);
    code = code ? code : size > free_bytes ? OUT_OF_MEMORY : allocate(device, size, address);
    pthread_mutex_unlock(&changing);
    return code;
}

API Result cuMemFree_v2(Address address) {
    Result code = ready("cuMemFree", -1);
    struct memory *memory = memory_of(address);
    if (code || !memory)
        return code ? code : INVALID_VALUE;
    pthread_mutex_lock(&changing);
    code = INVALID_VALUE;
    size_t offset = (address - FIRST_ADDRESS) % APART;
    for (int at = 0; at < memory->count && code; at++) {
        if (memory->blocks[at].offset != offset)
            continue;
        memory->used -= memory->blocks[at].size;
        memory->count--;
        memmove(&memory->blocks[at], &memory->blocks[at + 1], (size_t)(memory->count - at) * sizeof(Block));
        code = SUCCESS;
    }
    pthread_mutex_unlock(&changing);
    return code;
}

void *memory_at(Address address, size_t size) {
    struct memory *memory = memory_of(address);
    size_t offset = (address - FIRST_ADDRESS) % APART;
    for (int at = 0; memory && at < memory->count; at++) {
        Block block = memory->blocks[at];
        if (offset >= block.offset && offset - block.offset <= block.size && size <= block.size - (offset - block.offset))
            return memory->bytes + offset;
    }
    return NULL;
}

void memory_written(Device device) {
    Answer stuck = told("stuck", device);
    struct memory *memory = &memories[device];
    size_t offset = (size_t)store_integer(store_item(stuck, 0), 0);
    if (store_length(stuck) != 3 || !memory->bytes || offset > memory->size - sizeof(uint64_t))
        return;
    uint64_t word, bit = 1ull << (store_integer(store_item(stuck, 1), 0) & 63);
    memcpy(&word, memory->bytes + offset, sizeof word);
    word = store_integer(store_item(stuck, 2), 0) ? word | bit : word & ~bit;
    memcpy(memory->bytes + offset, &word, sizeof word);
}

API Result cuMemcpyHtoD_v2(Address to, const void *from, size_t size) {
    Device device;
    Result code = ready_here("cuMemcpyHtoD", &device);
    void *there = memory_at(to, size);
    if (code || !there || !from)
        return code ? code : INVALID_VALUE;
    memcpy(there, from, size);
    memory_written(device);
    return SUCCESS;
}

API Result cuMemcpyDtoH_v2(void *to, Address from, size_t size) {
    Device device;
    Result code = ready_here("cuMemcpyDtoH", &device);
    void *there = memory_at(from, size);
    if (code || !there || !to)
        return code ? code : INVALID_VALUE;
    memcpy(to, there, size);
    return SUCCESS;
}
