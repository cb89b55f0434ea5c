/* Random bytes that are the same in each run, and a clock that stands still: a dataset's identifiers and the times that are
 * stored with it are then the same, too. */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER;
static uint64_t state = 16;

ssize_t getrandom(void *buffer, size_t size, unsigned int flags)
{
    uint8_t *bytes = buffer;
    (void)flags;
    pthread_mutex_lock(&taken);
    for (size_t place = 0; place < size; place++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[place] = (uint8_t)(state >> 56);
    }
    pthread_mutex_unlock(&taken);
    return (ssize_t)size;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    /* In the past, so that whoever waits until some time later finds that it has come. */
    now->tv_sec = 1;
    now->tv_nsec = 0;
    return 0;
}
