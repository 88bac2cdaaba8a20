/* The faults of a scenario, and the trace of what was asked. See store.h. */
#define _GNU_SOURCE
#include "store.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct {
    const char *function; /* or "*" */
    long long gpu;        /* ANY_GPU: whatever it is about */
    const char *deed;     /* "hang", "crash", "dstate", "sleep:MS"; NULL: answer `code` */
    int code;
    long long from; /* the first call that it strikes, counting from 1 */
    atomic_llong calls;
} Fault;

#define ANY_GPU LLONG_MIN

static Fault *faults;
static size_t fault_count;
static int trace = -1;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void load(void) {
    store_ready();
    Answer list = store_member("faults");
    faults = calloc(store_length(list) + 1, sizeof *faults);
    for (size_t i = 0; faults && i < store_length(list); i++) {
        Answer item = store_item(list, i), deed = store_field(item, "do");
        const char *function = store_text(store_field(item, "call"));
        if (!function || !deed)
            continue;
        Fault *fault = &faults[fault_count++];
        fault->function = function;
        fault->gpu = store_integer(store_field(item, "gpu"), ANY_GPU);
        fault->deed = store_text(deed);
        fault->code = (int)store_integer(deed, 0);
        fault->from = store_integer(store_field(item, "from"), 1);
    }
    const char *log = getenv("GPUDOCTOR_SIM_TRACE");
    if (log)
        trace = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

/* ---- what a fault does ---- */

static void crash(void) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    _exit(128 + SIGSEGV); /* where the signal is blocked */
}

static void hang(void) {
    for (;;)
        pause();
}

/* State D in ps: the parent of a vfork waits so until the child execs or ends, and only SIGKILL ends a wait in which
 * every other signal is blocked. The child does neither, and goes when its parent is killed. */
static void dstate(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        hang();
    }
    hang();
}

/* ---- each call ---- */

/* One line a call: "nvmlDeviceGetTemperature(0)\t3"; "\t3.1" for a MIG device, "\t-" for the machine. */
void store_trace(const Question *question) {
    pthread_once(&loaded, load);
    if (trace < 0)
        return;
    char key[LONGEST_PATH], line[LONGEST_PATH + 64];
    Place where = question->where;
    store_key(key, sizeof key, question, question->count, 0);
    if (where.mig >= 0)
        snprintf(line, sizeof line, "%s\t%d.%d\n", key, where.gpu, where.mig);
    else if (where.gpu >= 0)
        snprintf(line, sizeof line, "%s\t%d\n", key, where.gpu);
    else
        snprintf(line, sizeof line, "%s\t-\n", key);
    if (write(trace, line, strlen(line)) < 0) /* one write: lines of several threads do not mix */
        trace = -1;
}

int store_obey(const Question *question) {
    store_trace(question);
    store_take_time(question->where);
    return store_fault(question);
}

int store_fault(const Question *question) {
    for (size_t i = 0; i < fault_count; i++) {
        Fault *fault = &faults[i];
        bool named = !strcmp(fault->function, "*") || !strcmp(fault->function, question->function);
        bool there = fault->gpu == ANY_GPU || fault->gpu == question->where.gpu;
        if (!named || !there || atomic_fetch_add(&fault->calls, 1) + 1 < fault->from)
            continue;
        if (!fault->deed)
            return fault->code;
        if (!strcmp(fault->deed, "hang"))
            hang();
        if (!strcmp(fault->deed, "crash"))
            crash();
        if (!strcmp(fault->deed, "dstate"))
            dstate();
        if (!strncmp(fault->deed, "sleep:", 6))
            store_nap(strtod(fault->deed + 6, NULL));
    }
    return 0;
}
