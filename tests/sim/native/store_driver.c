/* The kernel driver below both libraries: what it does to the machine, GPUs that wake when they are opened, calls that
 * take time, and its locks. What is done to the machine is in the trace; of files only those of a laid-out root change.
 *
 * Locks are byte ranges of the file `answers.lock`, held by an open file description, so that threads and processes
 * exclude each other alike and the kernel releases what a dead process held. See store.h. */
#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    API = 0,     /* the driver's API lock: exclusive while a GPU wakes, shared by ordinary calls */
    CALLS = 1,   /* + GPU: one call at a time about each GPU */
    OPENED = 512 /* + GPU: shared by every process that opened it, which keeps it awake */
};

static int opened = -1;           /* the description that holds what this process opened */
static _Thread_local int own = -1; /* the one by which this thread waits */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static int lock_file(void) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s.lock", store_path());
    return length > 0 && (size_t)length < sizeof path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
}

/* Whether the lock was had; only F_OFD_SETLK may fail. Without a file there is nothing to wait for. */
static bool lock(int file, int command, short type, int place) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
    int done;
    do
        done = fcntl(file, command, &range);
    while (done && errno == EINTR);
    return !done || (errno != EAGAIN && errno != EACCES);
}

static void acquire(short type, int place) {
    if (own < 0)
        own = lock_file();
    lock(own, F_OFD_SETLKW, type, place);
}

static void release(int place) { lock(own, F_OFD_SETLK, F_UNLCK, place); }

void store_nap(double milliseconds) {
    struct timespec left = {(time_t)(milliseconds / 1000), 0};
    left.tv_nsec = (long)((milliseconds - (double)left.tv_sec * 1000) * 1e6);
    while (milliseconds > 0 && nanosleep(&left, &left))
        ;
}

/* A number of NVML's section, whichever library asks: the GPU's own, then that of every GPU. */
static double told(int gpu, const char *name, const char *for_all) {
    char path[LONGEST_PATH];
    snprintf(path, sizeof path, "nvml.gpus[%d].%s", gpu, name);
    Answer its = store_at(path);
    snprintf(path, sizeof path, "nvml.%s%s", for_all, name);
    return store_real(its ? its : store_at(path), 0);
}

static double wake_ms(int gpu) {
    return told(gpu, "nvmlDeviceGetPersistenceMode", "every.") == 1 ? 0 : told(gpu, "wake_ms", "");
}

/* ---- what it does to the machine ---- */

static bool may(int capability) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2] = {0};
    return !syscall(SYS_capget, &header, sets) && sets[capability / 32].effective >> capability % 32 & 1;
}

void store_load_module(void) {
    bool helper = !prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) && !access("/usr/bin/nvidia-modprobe", F_OK);
    if (may(CAP_SYS_MODULE))
        store_trace(&QUESTION("modprobe nvidia", THE_MACHINE));
    else if (helper) /* setuid root */
        store_trace(&QUESTION("nvidia-modprobe", THE_MACHINE));
    if (may(CAP_MKNOD))
        store_trace(&QUESTION("mknod /dev/nvidiactl", THE_MACHINE));
}

/* A GPU that the kernel has suspended resumes when it is opened. */
static void resume(int gpu) {
    char path[LONGEST_PATH], state[16] = "";
    long long address[3];
    static const char *const parts[] = {"domain", "bus", "device"};
    if (strcmp(store_path(), "/.sim/answers")) /* in no laid-out root: the files are those of the real machine */
        return;
    for (int part = 0; part < 3; part++) {
        snprintf(path, sizeof path, "nvml.gpus[%d].nvmlDeviceGetPciInfo.%s", gpu, parts[part]);
        address[part] = store_integer(store_at(path), 0);
    }
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%04llx:%02llx:%02llx.0/power/runtime_status", address[0],
             address[1], address[2]);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    if (read(file, state, sizeof state - 1) > 0 && !strncmp(state, "suspended", 9)) {
        store_trace(&QUESTION("resume", ((Place){gpu, -1})));
        if (ftruncate(file, 0) || pwrite(file, "active\n", 7, 0) != 7)
            perror(path);
    }
    close(file);
}

/* ---- GPUs that sleep, and calls that wait ---- */

void store_wake(int gpu) {
    resume(gpu);
    double wait = wake_ms(gpu);
    if (wait <= 0)
        return;
    acquire(F_WRLCK, API);
    if (lock(own, F_OFD_SETLK, F_WRLCK, OPENED + gpu)) { /* nobody has it open */
        store_trace(&QUESTION("wake", ((Place){gpu, -1})));
        store_nap(wait);
    }
    release(OPENED + gpu);
    pthread_mutex_lock(&opening);
    if (opened < 0)
        opened = lock_file();
    lock(opened, F_OFD_SETLK, F_RDLCK, OPENED + gpu);
    pthread_mutex_unlock(&opening);
    release(API);
}

void store_close(int gpu) {
    pthread_mutex_lock(&opening);
    if (gpu >= 0)
        lock(opened, F_OFD_SETLK, F_UNLCK, OPENED + gpu);
    else if (opened >= 0) {
        close(opened);
        opened = -1;
    }
    pthread_mutex_unlock(&opening);
}

static double call_ms;
static bool contended; /* whether any call can wait: a scenario without times needs no locks */
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void load(void) {
    call_ms = store_real(store_member("call_ms"), 0);
    contended = call_ms > 0;
    for (size_t gpu = 0; gpu < store_length(store_at("nvml.gpus")); gpu++)
        contended = contended || wake_ms((int)gpu) > 0;
}

void store_take_time(Place where) {
    pthread_once(&loaded, load);
    if (!contended)
        return;
    acquire(F_RDLCK, API);
    if (call_ms > 0) {
        if (where.gpu >= 0)
            acquire(F_WRLCK, CALLS + where.gpu);
        store_nap(call_ms);
        if (where.gpu >= 0)
            release(CALLS + where.gpu);
    }
    release(API);
}
