/*
 * Replacements of the C library's variadic functions, in C since Rust cannot define these: formatted output to streams, and
 * programs that are started with a list of arguments. The length of output to a spooled file is computed first, so that
 * space can be reserved.
 *
 * Rust exports these functions under the C library's names (interpose/variadic.rs). The real `vfprintf` and similar
 * functions are those of the libraries that follow this one in the load order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void turbidite_stream_write(FILE *stream, size_t coming, void (*call)(void *), void *context);
int turbidite_stream_is_spooled(FILE *stream);
void turbidite_move_out(int descriptor);

/* One call. `flag` is the flag argument of the fortified functions (`__vfprintf_chk`), and negative for the plain
 * functions. */
struct call {
    FILE *stream;
    int flag;
    const char *format;
    va_list *arguments;
    int result;
};

static int (*plain)(FILE *, const char *, va_list);
static int (*checked)(FILE *, int, const char *, va_list);
static int (*plain_descriptor)(int, const char *, va_list);
static int (*checked_descriptor)(int, int, const char *, va_list);

/* Resolves the real functions. Runs when this library is loaded: a later call to the loader would clear the program's
 * last error (`dlerror`), which the program may be about to print. */
__attribute__((constructor)) static void find_functions(void)
{
    *(void **)&plain = dlsym(RTLD_NEXT, "vfprintf");
    *(void **)&checked = dlsym(RTLD_NEXT, "__vfprintf_chk");
    *(void **)&plain_descriptor = dlsym(RTLD_NEXT, "vdprintf");
    *(void **)&checked_descriptor = dlsym(RTLD_NEXT, "__vdprintf_chk");
}

static void carry_out(void *context)
{
    struct call *call = context;
    /* Another library's initialiser may print before our initialiser runs. */
    if (plain == NULL)
        find_functions();
    if (call->flag < 0)
        call->result = plain(call->stream, call->format, *call->arguments);
    else
        call->result = checked(call->stream, call->flag, call->format, *call->arguments);
}

static int write_formatted(FILE *stream, int flag, const char *format, va_list arguments)
{
    va_list kept;
    int bytes = 0;
    va_copy(kept, arguments);
    struct call call = {stream, flag, format, &kept, 0};
    if (turbidite_stream_is_spooled(stream)) {
        va_list measured;
        va_copy(measured, arguments);
        bytes = vsnprintf(NULL, 0, format, measured);
        va_end(measured);
    }
    turbidite_stream_write(stream, bytes > 0 ? (size_t)bytes : 0, carry_out, &call);
    va_end(kept);
    return call.result;
}

int turbidite_vfprintf(FILE *stream, const char *format, va_list arguments)
{
    return write_formatted(stream, -1, format, arguments);
}

int turbidite_vfprintf_chk(FILE *stream, int flag, const char *format, va_list arguments)
{
    return write_formatted(stream, flag < 0 ? 0 : flag, format, arguments);
}

int turbidite_fprintf(FILE *stream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int result = write_formatted(stream, -1, format, arguments);
    va_end(arguments);
    return result;
}

int turbidite_fprintf_chk(FILE *stream, int flag, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int result = write_formatted(stream, flag < 0 ? 0 : flag, format, arguments);
    va_end(arguments);
    return result;
}

/* Formatted output to a descriptor, whose file is moved out of the spool first. */
int turbidite_vdprintf(int descriptor, const char *format, va_list arguments)
{
    turbidite_move_out(descriptor);
    if (plain_descriptor == NULL)
        find_functions();
    return plain_descriptor(descriptor, format, arguments);
}

int turbidite_vdprintf_chk(int descriptor, int flag, const char *format, va_list arguments)
{
    turbidite_move_out(descriptor);
    if (checked_descriptor == NULL)
        find_functions();
    return checked_descriptor(descriptor, flag, format, arguments);
}

int turbidite_dprintf(int descriptor, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int result = turbidite_vdprintf(descriptor, format, arguments);
    va_end(arguments);
    return result;
}

int turbidite_dprintf_chk(int descriptor, int flag, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int result = turbidite_vdprintf_chk(descriptor, flag, format, arguments);
    va_end(arguments);
    return result;
}

/* Functions that replace the program take its arguments as a list, whose end is NULL. They are passed on as an array to
 * this library's own `execve` and `execvp`. */
#define EXECUTE(name, call, has_environment)                                      \
    int name(const char *path, const char *first, ...)                           \
    {                                                                             \
        va_list list;                                                             \
        size_t count = first != NULL;                                             \
        va_start(list, first);                                                    \
        while (count > 0 && va_arg(list, const char *) != NULL)                   \
            count++;                                                              \
        va_end(list);                                                             \
        const char *arguments[count + 1];                                         \
        arguments[0] = first;                                                     \
        va_start(list, first);                                                    \
        for (size_t at = 1; at <= count; at++)                                    \
            arguments[at] = va_arg(list, const char *);                           \
        char *const *environment = has_environment ? va_arg(list, char *const *) : environ; \
        va_end(list);                                                             \
        return call(path, (char *const *)arguments, environment);                 \
    }

EXECUTE(turbidite_execl, execve, 0)
EXECUTE(turbidite_execle, execve, 1)
EXECUTE(turbidite_execlp, execvpe, 0)
