/*
 * Replacements of the C library's functions for formatted output to streams, in C since Rust cannot define variadic
 * functions. The length of output to a spooled file is computed first, so that space can be reserved. All other calls
 * pass through.
 *
 * Rust exports these functions under the C library's names (interpose/formatted.rs). The real `vfprintf` and similar
 * functions are those of the libraries that follow this one in the load order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

void turbidite_stream_write(FILE *stream, size_t coming, void (*call)(void *), void *context);
int turbidite_stream_is_spooled(FILE *stream);

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

/* Resolves the real functions. Runs when this library is loaded: a later call to the loader would clear the program's
 * last error (`dlerror`), which the program may be about to print. */
__attribute__((constructor)) static void find_functions(void)
{
    *(void **)&plain = dlsym(RTLD_NEXT, "vfprintf");
    *(void **)&checked = dlsym(RTLD_NEXT, "__vfprintf_chk");
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
