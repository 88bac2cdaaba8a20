/* How the entry points of the simulated NVML turn a scenario's answers into what the caller asked for. */
#ifndef NVML_ANSWERS_H
#define NVML_ANSWERS_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS /* every version of a function is defined here by its own name */
#pragma GCC visibility push(default)  /* what the header declares is exported, nothing else */
#include <nvml.h>
#pragma GCC visibility pop

#include <stddef.h>

#include "store.h"

/* An answer of another kind than its function gives: a mistake in the scenario. */
#define WRONG_KIND NVML_ERROR_UNKNOWN

/* One member of a struct: where it is, and what the scenario's JSON holds for it. */
typedef struct {
    const char *name;
    enum { INTEGER, FLOATING, STRING, OPAQUE, INTEGERS } shape; /* OPAQUE: bytes, as hex digits */
    size_t offset, size, each;                                  /* each: the size of an array's items */
    int absent;                                                 /* the byte that fills it where the scenario has none */
} Field;

#define SHAPE(member)                                                                                                  \
    _Generic((member),                                                                                                 \
        char *: STRING,                                                                                                \
        unsigned char *: OPAQUE,                                                                                       \
        double: FLOATING,                                                                                              \
        unsigned int *: INTEGERS,                                                                                      \
        unsigned long *: INTEGERS,                                                                                     \
        unsigned long long *: INTEGERS,                                                                                \
        default: INTEGER)
#define EACH(member) _Generic((member), unsigned int *: 4, default: 8)
#define MEMBER(type, member) (((type *)NULL)->member)
#define FIELD_ELSE(type, member, absent)                                                                               \
    {#member,                                                                                                          \
     SHAPE(MEMBER(type, member)),                                                                                      \
     offsetof(type, member),                                                                                           \
     sizeof(MEMBER(type, member)),                                                                                     \
     EACH(MEMBER(type, member)),                                                                                       \
     absent}
#define FIELD(type, member) FIELD_ELSE(type, member, 0)
#define NOT_AVAILABLE 0xFF /* NVML_VALUE_NOT_AVAILABLE and its like: all ones */
#define END_OF_FIELDS {NULL, INTEGER, 0, 0, 0, 0}

/* The place of a handle; one that NVML never gave out answers INVALID_ARGUMENT to every question. */
Place place_of(nvmlDevice_t device);
#define ABOUT(device, function, ...) QUESTION(function, place_of(device), ##__VA_ARGS__)
#define ABOUT_MACHINE(function, ...) QUESTION(function, THE_MACHINE, ##__VA_ARGS__)

/* The checks that every call begins with: initialised, a true handle, no fault. */
nvmlReturn_t check(Question question);
/* The answer, the return code that the scenario has in its place, or NOT_SUPPORTED. */
nvmlReturn_t look_up(Question question, Answer *answer);
/* Both. */
nvmlReturn_t ask(Question question, Answer *answer);

/* Each: ask, and give the answer out in one shape. */
nvmlReturn_t give_number(Question question, void *to, size_t size);
nvmlReturn_t give_numbers(Question question, void *const to[], size_t count, size_t size); /* several out parameters */
nvmlReturn_t give_text(Question question, char *to, size_t size);
nvmlReturn_t give_fields(Question question, void *to, const Field fields[]);
/* The same where the struct begins with its version, which must be `version`. */
nvmlReturn_t give_versioned(Question question, void *to, unsigned version, const Field fields[]);
/* An array whose length the caller gives in *count, and the true one is told in it: INSUFFICIENT_SIZE where it is
 * more, or where there is no array yet. `fields` NULL: whole numbers. */
nvmlReturn_t give_list(Question question, unsigned *count, void *to, size_t each, const Field fields[]);

/* Pieces of the above. An object gives fields by name, a list in order, anything else is the first field. */
nvmlReturn_t put_fields(Answer answer, void *to, const Field fields[]);
long long number_now(Answer answer);
nvmlReturn_t put_number(Answer answer, void *to, size_t size);

#endif
