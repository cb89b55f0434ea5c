/* Times calls that are of no interest to the preload library: calls FILE. Prints nanoseconds a call. */
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define CALLS 100000

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    double begun = now_ns();
    for (int call = 0; call < CALLS; call++) {
        int descriptor = open("/dev/null", O_WRONLY);
        if (descriptor < 0 || close(descriptor) != 0)
            return 1;
    }
    double opened = now_ns();
    FILE *file = fopen(arguments[1], "w");
    if (file == NULL)
        return 1;
    for (int call = 0; call < CALLS; call++)
        if (fwrite(&call, sizeof call, 1, file) != 1)
            return 1;
    if (fclose(file) != 0)
        return 1;
    printf("%.1f %.1f\n", (opened - begun) / CALLS, (now_ns() - opened) / CALLS);
    return 0;
}
