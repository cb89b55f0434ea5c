/* Forks and threads that meet with streams: in handlers of forks, while other threads use the streams, and by `clone`. */
#include "habits.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define CHILDREN 20
#define CLOSINGS 300
#define STACK_BYTES (256 << 10)

/* The dump that the handlers write, outside of which they do nothing. */
static FILE *handled;
static const char *handled_path;

static void before_fork(void)
{
    if (handled)
        CHECK(fflush(handled) == 0);
}

static void in_parent(void)
{
    if (handled) {
        CHECK(fclose(handled) == 0);
        handled = fopen(handled_path, "a");
        CHECK(handled != NULL);
    }
}

static void in_child(void)
{
    if (handled)
        fclose(handled);
}

static pid_t fork_idle(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child;
}

/* Handlers of forks flush, close and open the dump. */
static void forked_with_handlers(int epoch)
{
    static int is_registered;
    if (!is_registered)
        CHECK(pthread_atfork(before_fork, in_parent, in_child) == 0);
    is_registered = 1;
    handled_path = path_of(epoch, "");
    handled = fopen(handled_path, "w");
    CHECK(handled != NULL && fwrite(HEADER, HEADER_BYTES, 1, handled) == 1);
    wait_for(fork_idle());
    CHECK(fwrite(records, sizeof *records, count / 2, handled) == count / 2);
    wait_for(fork_idle());
    CHECK(fwrite(records + count / 2, sizeof *records, count - count / 2, handled) == count - count / 2);
    CHECK(fclose(handled) == 0);
    handled = NULL;
}

static atomic_int is_over;

static void *flush_all(void *unused)
{
    while (!is_over)
        fflush(NULL);
    return unused;
}

static void *flush_one(void *stream)
{
    while (!is_over)
        fflush(stream);
    return NULL;
}

/* A thread flushes all streams while another one closes them. */
static void flushed_beside(int epoch)
{
    pthread_t flusher;
    is_over = 0;
    CHECK(pthread_create(&flusher, NULL, flush_all, NULL) == 0);
    for (int closing = 0; closing < CLOSINGS; closing++) {
        FILE *stream = fopen(path_of(epoch, ""), "w");
        CHECK(stream != NULL && fwrite(HEADER, HEADER_BYTES, 1, stream) == 1 && fclose(stream) == 0);
    }
    write_file(path_of(epoch, ""));
    is_over = 1;
    CHECK(pthread_join(flusher, NULL) == 0);
}

/* Children flush all streams, while a thread of their parent flushes one. */
static void forked_beside(int epoch)
{
    pthread_t flusher;
    FILE *stream = fopen(path_of(epoch, ""), "w");
    CHECK(stream != NULL);
    is_over = 0;
    CHECK(pthread_create(&flusher, NULL, flush_one, stream) == 0);
    for (int number = 0; number < CHILDREN; number++) {
        pid_t child = fork();
        if (child == 0) {
            fflush(NULL);
            _exit(0);
        }
        wait_for(child);
    }
    is_over = 1;
    CHECK(pthread_join(flusher, NULL) == 0);
    print_content(stream);
    CHECK(fclose(stream) == 0);
}

static void run_clone(int (*routine)(void *), void *argument)
{
    static char stack[STACK_BYTES] __attribute__((aligned(16)));
    wait_for(clone(routine, stack + sizeof stack, SIGCHLD, argument));
}

static int write_dump(void *epoch)
{
    write_file(path_of(*(int *)epoch, ""));
    return 0;
}

static int write_half(void *descriptor)
{
    write_all(*(int *)descriptor, records, bytes / 2);
    return 0;
}

/* A child of `clone` writes the dump. */
static void clone_writes(int epoch)
{
    run_clone(write_dump, &epoch);
}

/* A child of `clone` writes a half through the parent's descriptor. */
static void clone_shares(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_header(descriptor);
    run_clone(write_half, &descriptor);
    write_all(descriptor, (char *)records + bytes / 2, bytes - bytes / 2);
    CHECK(close(descriptor) == 0);
}

const struct habit FORKS[] = {
    {"fork_handlers", forked_with_handlers},
    {"flushed_beside", flushed_beside},
    {"forked_beside", forked_beside},
    {"clone_writes", clone_writes},
    {"clone_shares", clone_shares},
    {NULL, NULL},
};
