/* The answers of a scenario: one sorted array of (path, value) lines, read once. See store.h. */
#define _GNU_SOURCE
#include "store.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of value: the first byte after the tab. */
enum { NUMBER = '=', REAL = '~', TEXT = '"', CODE = '!', NOTHING = '-', LIST = '[', OBJECT = '{' };

struct entry {
    const char *path;
    const char *value; /* the kind's byte and what follows */
};

static struct entry *entries;
static size_t entry_count;
static char file[PATH_MAX];
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

/* ---- reading the file ---- */

/* The whole file with a NUL behind it, or NULL. */
static char *file_text(const char *path) {
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    size_t size = 0, room = 1 << 16;
    char *text = malloc(room);
    while (text) {
        size += fread(text + size, 1, room - size - 1, file);
        if (size < room - 1)
            break;
        char *more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    fclose(file);
    if (text)
        text[size] = '\0';
    return text;
}

/* Undo the escapes of a text in place: backslash and n, r, t, 0 or backslash. */
static void unescape(char *text) {
    static const char from[] = "nrt0\\", to[] = "\n\r\t\0\\";
    char *end = text;
    for (const char *at = text; *at; at++) {
        const char *escape = *at == '\\' && at[1] ? strchr(from, at[1]) : NULL;
        *end++ = escape ? to[escape - from] : *at;
        at += escape ? 1 : 0;
    }
    *end = '\0';
}

static int by_path(const void *one, const void *other) {
    return strcmp(((const struct entry *)one)->path, ((const struct entry *)other)->path);
}

/* Cut the text into entries; a line of another shape is passed over. */
static void split(char *text) {
    size_t lines = 1;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    entries = calloc(lines, sizeof *entries);
    if (!entries)
        return;
    bool sorted = true;
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *tab = strchr(line, '\t');
        if (!tab || !tab[1])
            continue;
        *tab = '\0';
        if (tab[1] == TEXT)
            unescape(tab + 2);
        entries[entry_count] = (struct entry){line, tab + 1};
        sorted = sorted && (!entry_count || strcmp(entries[entry_count - 1].path, line) < 0);
        entry_count++;
    }
    if (!sorted)
        qsort(entries, entry_count, sizeof *entries, by_path);
}

static void load(void) {
    Dl_info here;
    const char *path = getenv("GPUDOCTOR_SIM_ANSWERS");
    if (path)
        snprintf(file, sizeof file, "%s", path);
    else if (dladdr(&entries, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        int folder = slash ? (int)(slash - here.dli_fname + 1) : 0;
        snprintf(file, sizeof file, "%.*sanswers", folder, here.dli_fname);
    }
    char *text = *file ? file_text(file) : NULL; /* kept: the entries point into it */
    if (text)
        split(text);
    else
        fprintf(stderr, "simulated %s: cannot read answers from %s\n", STORE_SECTION, *file ? file : "nowhere");
}

/* ---- finding ---- */

static Answer entry_at(const char *path) {
    struct entry wanted = {path, NULL};
    return entry_count ? bsearch(&wanted, entries, entry_count, sizeof *entries, by_path) : NULL;
}

/* The entry of a path written as printf would; NULL for one too long to exist. */
__attribute__((format(printf, 1, 2))) static Answer entry_of(const char *format, ...) {
    char path[LONGEST_PATH];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    return length > 0 && (size_t)length < sizeof path ? entry_at(path) : NULL;
}

/* The entry for the question in one object of the section, the most exact key first; "f(a,*)" may be written "f(a)". */
static Answer entry_in(const char *object, const Question *question) {
    char key[LONGEST_PATH];
    Answer found = NULL;
    for (int wanted = 0; wanted <= question->count; wanted++)
        for (unsigned stars = 0; stars < 1u << question->count; stars++) {
            if (__builtin_popcount(stars) != wanted)
                continue;
            int shown = question->count;
            do {
                store_key(key, sizeof key, question, shown, stars);
                found = entry_of("%s.%s.%s", STORE_SECTION, object, key);
            } while (!found && shown-- && stars >> shown & 1);
            if (found)
                return found;
        }
    return NULL;
}

/* The question's entry, of whatever kind. */
static Answer entry_for(const Question *question) {
    char object[64];
    Place where = question->where;
    if (where.gpu < 0)
        return entry_in("system", question);
    if (where.mig >= 0) {
        snprintf(object, sizeof object, "gpus[%d].mig[%d]", where.gpu, where.mig);
        return entry_in(object, question);
    }
    snprintf(object, sizeof object, "gpus[%d]", where.gpu);
    Answer own = entry_in(object, question);
    return own ? own : entry_in("every", question);
}

static bool is(Answer answer, int kind) { return answer && answer->value[0] == kind; }

/* ---- what store.h promises ---- */

bool store_ready(void) {
    pthread_once(&loaded, load);
    return entry_of("%s", STORE_SECTION) != NULL;
}

void store_key(char *to, size_t size, const Question *question, int shown, unsigned stars) {
    size_t at = (size_t)snprintf(to, size, "%s", question->function);
    for (int i = 0; i < shown && at < size; i++) {
        const char *before = i ? "," : "(";
        if (stars >> i & 1)
            at += (size_t)snprintf(to + at, size - at, "%s*", before);
        else
            at += (size_t)snprintf(to + at, size - at, "%s%lld", before, question->arguments[i]);
    }
    if (shown && at < size)
        snprintf(to + at, size - at, ")");
}

int store_look_up(const Question *question, Answer *answer) {
    store_ready();
    Answer found = entry_for(question);
    int code = store_code(found);
    *answer = is(found, CODE) || is(found, NOTHING) ? NULL : found;
    return code ? code : *answer ? 0 : STORE_NO_ANSWER;
}

int store_ask(const Question *question, Answer *answer) {
    int code = store_obey(question);
    *answer = NULL;
    return code ? code : store_look_up(question, answer);
}

Answer store_find(const Question *question) {
    Answer answer;
    store_look_up(question, &answer);
    return answer;
}

Answer store_member(const char *name) { return entry_of("%s.%s", STORE_SECTION, name); }

Answer store_at(const char *path) { return store_ready() ? entry_at(path) : NULL; }

const char *store_path(void) {
    store_ready();
    return file;
}

Answer store_field(Answer object, const char *name) {
    return is(object, OBJECT) ? entry_of("%s.%s", object->path, name) : NULL;
}

Answer store_item(Answer list, size_t index) { return is(list, LIST) ? entry_of("%s[%zu]", list->path, index) : NULL; }

size_t store_length(Answer list) {
    if (!is(list, LIST))
        return 0;
    unsigned long long length = strtoull(list->value + 1, NULL, 10);
    return length < entry_count ? (size_t)length : entry_count; /* no list is longer than the file */
}

bool store_is_number(Answer answer) { return is(answer, NUMBER); }
bool store_is_real(Answer answer) { return is(answer, REAL); }
bool store_is_text(Answer answer) { return is(answer, TEXT); }
bool store_is_list(Answer answer) { return is(answer, LIST); }
bool store_is_object(Answer answer) { return is(answer, OBJECT); }

int store_code(Answer answer) { return is(answer, CODE) ? (int)strtol(answer->value + 1, NULL, 10) : 0; }

long long store_integer(Answer answer, long long otherwise) {
    if (!is(answer, NUMBER))
        return otherwise;
    const char *digits = answer->value + 1;
    return *digits == '-' ? strtoll(digits, NULL, 10) : (long long)strtoull(digits, NULL, 10);
}

double store_real(Answer answer, double otherwise) {
    return is(answer, REAL) || is(answer, NUMBER) ? strtod(answer->value + 1, NULL) : otherwise;
}

const char *store_text(Answer answer) { return is(answer, TEXT) ? answer->value + 1 : NULL; }

bool store_copy_text(Answer text, char *to, size_t size) {
    const char *from = store_text(text);
    size_t length = from ? strlen(from) + 1 : 1;
    if (!to || length > size)
        return false;
    memcpy(to, from ? from : "", length);
    return true;
}

static int digit(char at) {
    const char *digits = "0123456789abcdef", *found = at ? strchr(digits, at | 0x20) : NULL;
    return found ? (int)(found - digits) : -1;
}

void store_copy_hex(Answer text, void *to, size_t size) {
    const char *from = store_text(text);
    unsigned char *bytes = to;
    memset(to, 0, size);
    for (size_t i = 0; from && i < size; i++, from += 2) {
        int high = digit(from[0]), low = high < 0 ? -1 : digit(from[1]);
        if (low < 0)
            return;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
}
