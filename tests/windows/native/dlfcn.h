/* dladdr for Windows: the file of the library that an address lies in, with slashes. */
#pragma once

typedef struct {
    const char *dli_fname;
} Dl_info;

__declspec(dllimport) int __stdcall GetModuleHandleExA(unsigned long flags, const char *address, void **module);
__declspec(dllimport) unsigned long __stdcall GetModuleFileNameA(void *module, char *name, unsigned long size);

enum { FROM_ADDRESS = 4, UNCHANGED_REFCOUNT = 2 };

static inline int dladdr(const void *address, Dl_info *info) {
    static char name[260];
    void *module;
    if (!GetModuleHandleExA(FROM_ADDRESS | UNCHANGED_REFCOUNT, (const char *)address, &module) ||
        !GetModuleFileNameA(module, name, sizeof name))
        return 0;
    for (char *at = name; *at; at++)
        if (*at == '\\')
            *at = '/';
    info->dli_fname = name;
    return 1;
}
