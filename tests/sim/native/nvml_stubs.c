/* Every other function of nvml.h, as the real library has them all: build.py writes its names, one STUB(name) a line.
 * A stub is weak, so that a function written by hand takes its place, and knows only its first argument. */
int answer_of_stub(const char *function, void *first); /* nvml.c */

#define STUB(name)                                                                                                     \
    __attribute__((weak, visibility("default"))) int name(void *first);                                                \
    int name(void *first) { return answer_of_stub(#name, first); }

#include "nvml_names.inc"
