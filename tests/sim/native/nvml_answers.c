/* From answers to C values: numbers, texts, structs and arrays. See nvml_answers.h. */
#include "nvml_answers.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

const char *const STORE_SECTION = "nvml";

/* The number that an answer gives now: a counter may rise, {"from": 7, "per_second": 10000}, by the clock that all
 * processes share. */
long long number_now(Answer answer) {
    if (!store_is_object(answer))
        return store_integer(answer, 0);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long rate = store_integer(store_field(answer, "per_second"), 0);
    return store_integer(store_field(answer, "from"), 0) + now.tv_sec * rate + now.tv_nsec * rate / 1000000000;
}

/* A whole number of 1, 2, 4 or 8 bytes, signed or not: one that has no room is refused, not cut. */
nvmlReturn_t put_number(Answer answer, void *to, size_t size) {
    if (!store_is_number(answer) && !store_is_object(answer))
        return WRONG_KIND;
    long long number = number_now(answer);
    if (size < 8 && (number >= 1LL << 8 * size || number < -(1LL << (8 * size - 1))))
        return WRONG_KIND;
    memcpy(to, &number, size); /* little-endian, as every host of these tests */
    return NVML_SUCCESS;
}

static nvmlReturn_t put_field(Answer answer, char *to, const Field *field) {
    bool number = field->shape == INTEGER || field->shape == INTEGERS || field->shape == FLOATING;
    to += field->offset;
    if (number ? store_is_text(answer) : store_is_number(answer))
        return WRONG_KIND;
    if (field->shape == INTEGER && store_is_number(answer))
        return put_number(answer, to, field->size);
    memset(to, field->absent, field->size);
    if (field->shape == STRING && store_is_text(answer))
        return store_copy_text(answer, to, field->size) ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    if (field->shape == OPAQUE && store_is_text(answer))
        store_copy_hex(answer, to, field->size);
    if (field->shape == FLOATING)
        memcpy(to, &(double){store_real(answer, 0)}, sizeof(double));
    nvmlReturn_t code = NVML_SUCCESS;
    for (size_t i = 0; field->shape == INTEGERS && i < field->size / field->each && i < store_length(answer); i++)
        if (code == NVML_SUCCESS)
            code = put_number(store_item(answer, i), to + i * field->each, field->each);
    return code;
}

nvmlReturn_t put_fields(Answer answer, void *to, const Field fields[]) {
    nvmlReturn_t code = NVML_SUCCESS;
    for (size_t i = 0; fields[i].name && code == NVML_SUCCESS; i++) {
        Answer part = i ? NULL : answer;
        if (store_is_object(answer))
            part = store_field(answer, fields[i].name);
        else if (store_is_list(answer))
            part = store_item(answer, i);
        code = put_field(part, to, &fields[i]);
    }
    return code;
}

nvmlReturn_t give_number(Question question, void *to, size_t size) {
    Answer answer;
    nvmlReturn_t code = to ? ask(question, &answer) : NVML_ERROR_INVALID_ARGUMENT;
    return code ? code : put_number(answer, to, size);
}

nvmlReturn_t give_numbers(Question question, void *const to[], size_t count, size_t size) {
    Answer answer;
    nvmlReturn_t code = NVML_SUCCESS;
    for (size_t i = 0; i < count; i++)
        if (!to[i])
            return NVML_ERROR_INVALID_ARGUMENT;
    code = ask(question, &answer);
    for (size_t i = 0; i < count && code == NVML_SUCCESS; i++)
        code = put_number(store_item(answer, i), to[i], size);
    return code;
}

nvmlReturn_t give_text(Question question, char *to, size_t size) {
    Answer answer;
    nvmlReturn_t code = to ? ask(question, &answer) : NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && !store_is_text(answer))
        code = WRONG_KIND;
    if (code == NVML_SUCCESS && !store_copy_text(answer, to, size))
        code = NVML_ERROR_INSUFFICIENT_SIZE;
    return code;
}

nvmlReturn_t give_fields(Question question, void *to, const Field fields[]) {
    Answer answer;
    nvmlReturn_t code = to ? ask(question, &answer) : NVML_ERROR_INVALID_ARGUMENT;
    return code ? code : put_fields(answer, to, fields);
}

nvmlReturn_t give_versioned(Question question, void *to, unsigned version, const Field fields[]) {
    if (to && *(unsigned *)to != version)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return give_fields(question, to, fields);
}

nvmlReturn_t give_list(Question question, unsigned *count, void *to, size_t each, const Field fields[]) {
    Answer answer;
    nvmlReturn_t code = count ? ask(question, &answer) : NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS)
        return code;
    if (!store_is_list(answer))
        return WRONG_KIND;
    size_t length = store_length(answer), room = to ? *count : 0;
    *count = length < UINT32_MAX ? (unsigned)length : UINT32_MAX;
    if (length > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (size_t i = 0; i < length && code == NVML_SUCCESS; i++) {
        char *at = (char *)to + i * each;
        Answer item = store_item(answer, i);
        code = fields ? put_fields(item, at, fields) : put_number(item, at, each);
    }
    return code;
}
