/* The event log, which Wine only has the head of: EvtQuery gives the lines of events.xml beside this DLL, one event each.
 * No such file: a query fails as Wine's own does. A file that begins with "refused" answers ERROR_ACCESS_DENIED. */
#include <stdio.h>
#include <string.h>
#include <windows.h>

#define API __declspec(dllexport)
#define MOST 100

static char *lines[MOST];
static int count, next;

API HANDLE WINAPI EvtQuery(HANDLE session, const WCHAR *path, const WCHAR *query, DWORD flags) {
    static char text[1 << 20];
    (void)session, (void)path, (void)query, (void)flags;
    char place[MAX_PATH];
    GetSystemDirectoryA(place, sizeof place - 12);
    FILE *file = fopen(strcat(place, "\\events.xml"), "rb");
    SetLastError(ERROR_SUCCESS);
    if (!file) return NULL;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    count = next = 0;
    if (!strncmp(text, "refused", 7)) {
        SetLastError(ERROR_ACCESS_DENIED);
        return NULL;
    }
    for (char *line = strtok(text, "\n"); line && count < MOST; line = strtok(NULL, "\n")) lines[count++] = line;
    return (HANDLE)1;
}

API BOOL WINAPI EvtNext(HANDLE query, DWORD size, HANDLE *events, DWORD timeout, DWORD flags, DWORD *returned) {
    (void)query, (void)size, (void)timeout, (void)flags;
    if (next >= count) {
        SetLastError(ERROR_NO_MORE_ITEMS);
        return FALSE;
    }
    events[0] = (HANDLE)(ULONG_PTR)++next;
    *returned = 1;
    return TRUE;
}

API BOOL WINAPI EvtRender(HANDLE context, HANDLE event, DWORD flags, DWORD size, void *buffer, DWORD *used,
                          DWORD *properties) {
    (void)context, (void)flags;
    const char *line = lines[(ULONG_PTR)event - 1];
    *used = 2 * (DWORD)MultiByteToWideChar(CP_UTF8, 0, line, -1, buffer, (int)size / 2);
    *properties = 0;
    return *used > 0;
}

API BOOL WINAPI EvtClose(HANDLE object) {
    (void)object;
    return TRUE;
}
