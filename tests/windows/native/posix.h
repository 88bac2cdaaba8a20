/* What the simulated driver takes from POSIX, for mingw: included before each of its files. There is no windows.h here,
 * whose macros are words of these sources. A hang sleeps, state D is a hang, a crash is an access violation. */
#pragma once
#include <signal.h>
#include <stdio.h>

__declspec(dllimport) void __stdcall Sleep(unsigned long milliseconds);

#define O_CLOEXEC _O_BINARY
#define SIGKILL SIGTERM
#define SIG_SETMASK 0
#define PR_SET_PDEATHSIG 0
#define RLIMIT_CORE 0

typedef unsigned long long sigset_t;
struct rlimit {
    int now, most;
};

#undef pthread_sigmask
#define pthread_sigmask(how, set, old) ((void)(set))
#define sigfillset(set) (*(set) = 0)
#define pause() Sleep(0xffffffff)
#define vfork() 1
#define prctl(...) 0
#define setrlimit(what, ...) ((void)0)
#define raise(number) (*(volatile int *)8 = 0)

/* "re" of POSIX: no program that is started inherits it; here it keeps \r as it is. */
static inline FILE *open_binary(const char *path) { return fopen(path, "rb"); }
#define fopen(path, mode) open_binary(path)
