/* Ways in which a program ends, once the files of all epochs are complete. All ranks end in the same way. */
#include "habits.h"

#include <signal.h>
#include <sys/syscall.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

/* Waits for the other ranks in a call in which nothing is indexed. */
static void meet_unseen(void)
{
#ifdef WITH_MPI
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
}

/* Writes the epoch. Returns whether the program ends now: after the last epoch, when the files of all ranks are complete. */
static int written_last(int epoch)
{
    write_file(path_of(epoch, ""));
    if (epoch < last_epoch)
        return 0;
    meet_unseen();
    return 1;
}

static void ends_by_exit(int epoch)
{
    if (written_last(epoch))
        exit(3);
}

static void ends_by__exit(int epoch)
{
    if (written_last(epoch))
        _exit(0);
}

static void ends_by_system_call(int epoch)
{
    if (written_last(epoch))
        syscall(SYS_exit_group, 0);
}

static void ends_by_quick_exit(int epoch)
{
    if (written_last(epoch))
        quick_exit(0);
}

static void ends_by_abort(int epoch)
{
    if (written_last(epoch))
        abort();
}

static void ends_by_exec(int epoch)
{
    if (written_last(epoch))
        execlp("true", "true", (char *)NULL);
}

static void end_by(int number)
{
    struct sigaction before;
    /* Nobody but the program has set a handler, as far as the program can see. */
    CHECK(number == SIGKILL || (sigaction(number, NULL, &before) == 0 && (ranks > 1 || before.sa_handler == SIG_DFL)));
    kill(getpid(), number);
    pause();
}

static void ends_by_sigterm(int epoch)
{
    if (written_last(epoch))
        end_by(SIGTERM);
}

static void ends_by_sigint(int epoch)
{
    if (written_last(epoch))
        end_by(SIGINT);
}

static void ends_by_sighup(int epoch)
{
    if (written_last(epoch))
        end_by(SIGHUP);
}

static void ends_by_sigsegv(int epoch)
{
    if (written_last(epoch))
        end_by(SIGSEGV);
}

static void ends_by_sigkill(int epoch)
{
    if (written_last(epoch))
        end_by(SIGKILL);
}

static volatile sig_atomic_t interrupted;

static void note(int number)
{
    (void)number;
    interrupted = 1;
}

/* The program has a handler of its own, and goes on. */
static void handles_sigterm(int epoch)
{
    struct sigaction action = {.sa_handler = note}, before;
    CHECK(sigaction(SIGTERM, &action, NULL) == 0);
    write_file(path_of(epoch, ""));
    CHECK(raise(SIGTERM) == 0 && interrupted);
    interrupted = 0;
    CHECK(sigaction(SIGTERM, NULL, &before) == 0 && before.sa_handler == note);
    CHECK(signal(SIGTERM, SIG_DFL) == note);
}

static void ignores_sigterm(int epoch)
{
    CHECK(signal(SIGTERM, SIG_IGN) != SIG_ERR);
    write_file(path_of(epoch, ""));
    CHECK(raise(SIGTERM) == 0);
    CHECK(signal(SIGTERM, SIG_DFL) == SIG_IGN);
}

/* An exit handler of the program writes the last epoch. */
static void write_at_exit(void)
{
    write_file(path_of(last_epoch, ""));
}

static void writes_at_exit(int epoch)
{
    if (epoch < last_epoch)
        write_file(path_of(epoch, ""));
    else
        CHECK(atexit(write_at_exit) == 0);
}

/* The last file is written past MPI_Finalize. */
static void writes_past_finalize(int epoch)
{
    if (epoch == last_epoch) {
        finish();
        write_file(path_of(epoch, ""));
        exit(0);
    }
    write_file(path_of(epoch, ""));
}

#ifdef WITH_MPI
static void aborts(int epoch, int by)
{
    if (written_last(epoch) && rank == by)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (epoch == last_epoch)
        meet_once();
}

static void first_aborts(int epoch)
{
    aborts(epoch, 0);
}

static void last_aborts(int epoch)
{
    aborts(epoch, ranks - 1);
}

/* Rank 0 writes all files, and another rank aborts. */
static void idle_aborts(int epoch)
{
    for (int of_rank = 0; of_rank < ranks && rank == 0; of_rank++) {
        fill(epoch, of_rank, 0);
        write_file(path_of_rank(epoch, of_rank, ""));
    }
    if (epoch < last_epoch)
        return;
    meet_unseen();
    if (rank == ranks - 1)
        MPI_Abort(MPI_COMM_WORLD, 3);
    meet_once();
}

static void forgets_finalize(int epoch)
{
    if (written_last(epoch))
        exit(0);
}
#endif

const struct habit ENDINGS[] = {
    {"exit", ends_by_exit},
    {"_exit", ends_by__exit},
    {"raw_exit", ends_by_system_call},
    {"quick_exit", ends_by_quick_exit},
    {"abort", ends_by_abort},
    {"exec", ends_by_exec},
    {"sigterm", ends_by_sigterm},
    {"sigint", ends_by_sigint},
    {"sighup", ends_by_sighup},
    {"sigsegv", ends_by_sigsegv},
    {"sigkill", ends_by_sigkill},
    {"sigterm_handled", handles_sigterm},
    {"sigterm_ignored", ignores_sigterm},
    {"atexit_writes", writes_at_exit},
    {"past_finalize", writes_past_finalize},
#ifdef WITH_MPI
    {"mpi_abort_first", first_aborts},
    {"mpi_abort_last", last_aborts},
    {"mpi_abort_idle", idle_aborts},
    {"no_finalize", forgets_finalize},
#endif
    {NULL, NULL},
};
