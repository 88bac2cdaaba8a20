/* The kernel driver below both libraries on Windows, in place of the file of the same name of tests/sim: calls take
 * their time; GPUs are always awake, and no module is loaded. See store.h. */
#include "store.h"

void store_load_module(void) {}

void store_wake(int gpu) { (void)gpu; }

void store_close(int gpu) { (void)gpu; }

void store_nap(double milliseconds) {
    if (milliseconds > 0)
        Sleep((unsigned long)milliseconds);
}

void store_take_time(Place where) {
    (void)where;
    store_nap(store_real(store_member("call_ms"), 0));
}
