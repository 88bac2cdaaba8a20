/* A libnccl.so.2 that answers as GPUDOCTOR_STUB_NCCL says, without choosing anything:
 * ok, refuses (no interface), hangs, crashes, silent (announces nothing), number (an early release's version). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_USAGE = 5, ID_BYTES = 128 };

static int told(const char *deed) {
  const char *wanted = getenv("GPUDOCTOR_STUB_NCCL");
  return wanted && strcmp(wanted, deed) == 0;
}

/* As NCCL does: nothing is logged unless NCCL_DEBUG asks for it. */
static void info(const char *words) {
  const char *level = getenv("NCCL_DEBUG");
  if (level && strcmp(level, "INFO") == 0) printf("node:42:42 [0] NCCL INFO %s\n", words);
}

SHOWN int ncclGetVersion(int *version) {
  *version = told("number") ? 2804 : 22705;
  return SUCCESS;
}

SHOWN const char *ncclGetErrorString(int code) {
  return code == INVALID_USAGE ? "invalid usage (run with NCCL_DEBUG=WARN for details)" : "no error";
}

SHOWN const char *ncclGetLastError(void *communicator) {
  (void)communicator;
  return told("refuses") ? "Bootstrap : no socket interface found" : "";
}

SHOWN int ncclGetUniqueId(char *id) {
  memset(id, 0, ID_BYTES);
  if (told("hangs")) pause();
  if (told("crashes")) abort();
  if (told("refuses")) {
    printf("[2026-11-22 03:26:54] node:42:42 [0] bootstrap.cc:115 NCCL WARN Bootstrap : no socket interface found\n");
    return INVALID_USAGE;
  }
  if (!told("silent")) info(told("six") ? "Bootstrap: Using eth7:fe80::7%eth7<0>" : "Bootstrap: Using eth7:192.0.2.7<0>");
  return SUCCESS;
}
