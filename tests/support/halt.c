/*
 * Preloaded, it stops the process when that is about to open a file whose path contains HALT_AT, once, after HALT_AFTER
 * earlier openings. A test that needs a command in the middle of its work waits for that, and need not be faster than the
 * command.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static void halt_at(const char *path)
{
    static atomic_int openings;
    const char *at = getenv("HALT_AT"), *after = getenv("HALT_AFTER");
    if (at != NULL && strstr(path, at) != NULL && atomic_fetch_add(&openings, 1) == (after != NULL ? atoi(after) : 0))
        raise(SIGSTOP);
}

typedef int (*opener)(const char *, int, ...);

#define STAND_IN(name)                                            \
    int name(const char *path, int flags, ...)                    \
    {                                                             \
        va_list arguments;                                        \
        va_start(arguments, flags);                               \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments);                                        \
        halt_at(path);                                            \
        return ((opener)dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }

STAND_IN(open)
STAND_IN(open64)
