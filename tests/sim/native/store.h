/* What the simulated driver libraries answer, read from a text file; each library holds its own copy.
 *
 * The file is GPUDOCTOR_SIM_ANSWERS, else `answers` beside the library itself. It holds the "nvml" and "cuda" sections
 * of a scenario, flattened by build.py to sorted lines `path TAB kind value`, such as
 *     nvml.every.nvmlDeviceGetTemperature(0)        =31         a whole number
 *     nvml.gpus[3].nvmlDeviceGetPowerUsage          %90000 650000 20000 0   between two bounds, by the clock: period, phase (ms)
 *     nvml.gpus[3].nvmlDeviceGetName                "NVIDIA ..  text, \n and its like escaped
 *     nvml.gpus[3].nvmlDeviceGetSerial              !15         that return code
 *     nvml.gpus[3].nvmlDeviceGetFanSpeed            -           nothing, though "every" has it
 *     nvml.every.nvmlDeviceGetEccMode               [2          a list; its items are at ...[0], ...[1]
 *     nvml.every.nvmlDeviceGetMemoryInfo            {           an object; its fields are at .total, .free
 * Nothing in the file can make these functions read or write outside their memory.
 */
#ifndef STORE_H
#define STORE_H

#include <stdbool.h>
#include <stddef.h>

/* About what a question is put: the machine, a GPU, or a MIG device of a GPU. */
typedef struct {
    int gpu; /* -1: the machine */
    int mig; /* -1: the GPU itself */
} Place;

#define THE_MACHINE ((Place){-1, -1})
#define MOST_ARGUMENTS 3
#define LONGEST_PATH 512 /* of the file's paths, with the NUL */

/* One call: the name by which a scenario knows it, about what, and the arguments behind the handle. */
typedef struct {
    const char *function;
    Place where;
    int count; /* of arguments */
    long long arguments[MOST_ARGUMENTS];
} Question;

/* A Question as an expression: QUESTION("cuDeviceGetAttribute", gpu_place, 75). */
#define QUESTION(function, where, ...)                                                                                 \
    ((Question){function, where, (int)(sizeof((long long[]){0, ##__VA_ARGS__}) / sizeof(long long)) - 1, {__VA_ARGS__}})

/* A place in the file: a number, a text, a list or an object. NULL is "no answer", which every function below takes. */
typedef const struct entry *Answer;

/* Which section this library answers from, "nvml" or "cuda": each library defines it. */
extern const char *const STORE_SECTION;

/* Whether the file could be read and holds the section (said on stderr where not). Loads on first use; thread-safe, as
 * is everything here. */
bool store_ready(void);

/* Trace the call (GPUDOCTOR_SIM_TRACE) and obey the faults that name it, which may never return.
 * 0: go on; else the return code that a fault names. */
int store_obey(const Question *question);
/* Obey the faults alone: of a call about two GPUs, the second one's. */
int store_fault(const Question *question);

/* The answer, neither traced nor counted, faults left aside. 0: `answer` is set; else it is NULL, and the return code
 * tells which one the scenario has in its place ({"code": 15}), or that it has none. Looked up for the GPU, then for
 * every GPU, as f(a,b), f(*,b), f(a,*) or f(a), f. A MIG device answers only what it holds itself. */
#define STORE_NO_ANSWER (-1)
int store_look_up(const Question *question, Answer *answer);

/* One line in the trace, where there is one. */
void store_trace(const Question *question);

/* What a library does first where the kernel module is not loaded, as far as the process may: modprobe, mknod. Traced,
 * not done. */
void store_load_module(void);

/* What the driver does below a call (store_driver.c). A GPU that the kernel has suspended resumes. A GPU whose persistence mode is off sleeps until a process opens
 * it: that takes its "wake_ms", of the GPU or of the section "nvml", one GPU at a time on the whole machine, and it stays
 * awake while a process has it open. gpu < 0: every GPU that this process has opened. */
void store_wake(int gpu);
void store_close(int gpu);
/* The section's "call_ms", in which no other call about the same GPU goes on; no call goes on while a GPU wakes. */
void store_take_time(Place where);
void store_nap(double milliseconds);

/* store_obey, then store_look_up: what most calls are. */
int store_ask(const Question *question, Answer *answer);

/* store_look_up where the code is of no interest: the answer or NULL. */
Answer store_find(const Question *question);

/* How a question is written: "f(a,*)", the first `shown` arguments, with a star for each whose bit is set in `stars`;
 * "f" where none are shown. */
void store_key(char *to, size_t size, const Question *question, int shown, unsigned stars);

/* A member of the section that is no call: "init", "gpus". */
Answer store_member(const char *name);
/* A whole path of the file, of any section: "nvml.gpus[3].wake_ms". */
Answer store_at(const char *path);
/* The file's own path; "" where there is none. */
const char *store_path(void);

/* Parts of an answer; NULL where it has no such part or is of another kind. */
Answer store_field(Answer object, const char *name);
Answer store_item(Answer list, size_t index);
size_t store_length(Answer list); /* 0 for what is no list */

bool store_is_number(Answer answer);
bool store_is_real(Answer answer); /* a number with a fraction */
bool store_is_text(Answer answer);
bool store_is_list(Answer answer);
bool store_is_object(Answer answer);
/* The return code that this part is ({"code": n} inside a list or an object), or 0. */
int store_code(Answer answer);
long long store_integer(Answer answer, long long otherwise); /* numbers above 2^63 keep their 64 bits */
double store_real(Answer answer, double otherwise);
const char *store_text(Answer answer); /* NULL for what is no text; lives as long as the library */

/* Copy a text with its NUL into `size` bytes: false, with nothing written, where it does not fit. */
bool store_copy_text(Answer text, char *to, size_t size);
/* Fill `size` bytes from a text of hex digits; missing digits are zeros, other characters end it. */
void store_copy_hex(Answer text, void *to, size_t size);

#endif
