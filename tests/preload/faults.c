/*
 * Preloaded behind libturbidite_preload.so: lets a call on a file below FAULT_UNDER fail, the FAULT_NUMBERth and, with
 * FAULT_STAYS, all after it. FAULT_CALL is "reserve" (fallocate64) or "write"; FAULT_ERROR is the number of the error. That it
 * has happened is said in the file FAULT_SEEN.
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static int fails(const char *call, int descriptor)
{
    const char *wanted = getenv("FAULT_CALL"), *under = getenv("FAULT_UNDER");
    char link[64], path[4096];
    if (wanted == NULL || under == NULL || strcmp(wanted, call) != 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    if (strncmp(path, under, strlen(under)) != 0 || strstr(path, "/files/") == NULL)
        return 0;
    long number = atomic_fetch_add(&calls, 1) + 1, first = atol(getenv("FAULT_NUMBER"));
    if (number != first && (number < first || getenv("FAULT_STAYS") == NULL))
        return 0;
    close(open(getenv("FAULT_SEEN"), O_CREAT | O_WRONLY, 0666));
    errno = atoi(getenv("FAULT_ERROR"));
    return 1;
}

#define NEXT(name, type) ((type)dlsym(RTLD_NEXT, #name))

int fallocate64(int descriptor, int mode, off64_t offset, off64_t length)
{
    return fails("reserve", descriptor) ? -1
                                        : NEXT(fallocate64, int (*)(int, int, off64_t, off64_t))(descriptor, mode, offset, length);
}

ssize_t write(int descriptor, const void *from, size_t count)
{
    return fails("write", descriptor) ? -1 : NEXT(write, ssize_t(*)(int, const void *, size_t))(descriptor, from, count);
}

ssize_t pwrite(int descriptor, const void *from, size_t count, off_t offset)
{
    return fails("write", descriptor)
               ? -1
               : NEXT(pwrite, ssize_t(*)(int, const void *, size_t, off_t))(descriptor, from, count, offset);
}

ssize_t writev(int descriptor, const struct iovec *pieces, int count)
{
    return fails("write", descriptor) ? -1
                                      : NEXT(writev, ssize_t(*)(int, const struct iovec *, int))(descriptor, pieces, count);
}
