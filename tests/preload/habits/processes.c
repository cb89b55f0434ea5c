/* Children: they write files of their own, files of their parent, and copies. */
#include "habits.h"

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

/* The child writes the dump. */
static void child_writes(int epoch)
{
    pid_t child = fork();
    if (child == 0) {
        write_file(path_of(epoch, ""));
        _exit(0);
    }
    wait_for(child);
}

static void child_writes_and_exits(int epoch)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        write_file(path_of(epoch, ""));
        exit(0);
    }
    wait_for(child);
}

/* The child writes a half through the parent's descriptor. */
static void child_shares(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_header(descriptor);
    pid_t child = fork();
    if (child == 0) {
        write_all(descriptor, records, bytes / 2);
        _exit(0);
    }
    wait_for(child);
    write_all(descriptor, (char *)records + bytes / 2, bytes - bytes / 2);
    CHECK(close(descriptor) == 0);
}

static void child_by_system_call(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_header(descriptor);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        syscall(SYS_write, descriptor, records, bytes / 2);
        syscall(SYS_exit_group, 0);
    }
    wait_for(child);
    write_all(descriptor, (char *)records + bytes / 2, bytes - bytes / 2);
    CHECK(close(descriptor) == 0);
}

/* The child has the file open for as long as the parent writes it. */
static void child_beside(int epoch)
{
    int ends[2], descriptor = create(path_of(epoch, ""));
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    write_content(descriptor);
    CHECK(close(descriptor) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    wait_for(child);
}

static void copied_by_shell(int epoch)
{
    write_file(path_of(epoch, ""));
    run_shell("mkdir -p %s/backup/E.%d && cp %s %s/backup/E.%d/", folder, epoch, path_of(epoch, ""), folder, epoch);
}

static void copied_before_close(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_content(descriptor);
    run_shell("cp %s %s", path_of(epoch, ""), path_of(epoch, ".copy"));
    CHECK(close(descriptor) == 0);
}

static void dump_made_by_shell(int epoch)
{
    write_file(path_of(epoch, ".in"));
    run_shell("cp %s %s", path_of(epoch, ".in"), path_of(epoch, ""));
}

static void renamed_by_shell(int epoch)
{
    write_file(path_of(epoch, ".tmp"));
    run_shell("mv %s %s", path_of(epoch, ".tmp"), path_of(epoch, ""));
}

static void moved_away_by_shell(int epoch)
{
    write_file(path_of(epoch, ""));
    run_shell("mv %s %s", path_of(epoch, ""), path_of(epoch, ".moved"));
}

static void removed_by_shell(int epoch)
{
    write_file(path_of(epoch, ""));
    if (epoch == 3)
        run_shell("rm %s", path_of(epoch, ""));
}

static void compressed(int epoch)
{
    write_file(path_of(epoch, ""));
    run_shell("gzip -1 -k -n %s", path_of(epoch, ""));
}

static void archived(int epoch)
{
    char command[2 * PATH_MAX];
    write_file(path_of(epoch, ""));
    snprintf(command, sizeof command, "tar -C %s --mtime=@0 --owner=0 --group=0 --mode=644 -cf - E.%d/rows.%d > %s", folder, epoch,
             rank, path_of(epoch, ".tar"));
    FILE *stream = popen(command, "r");
    CHECK(stream != NULL && pclose(stream) == 0);
}

static void piped(int epoch)
{
    char command[PATH_MAX + 16];
    snprintf(command, sizeof command, "cat > %s", path_of(epoch, ""));
    FILE *stream = popen(command, "w");
    CHECK(stream != NULL);
    print_content(stream);
    CHECK(pclose(stream) == 0);
}

static void copied_by_vfork(int epoch)
{
    const char *from = path_of(epoch, ""), *to = path_of(epoch, ".copy");
    write_file(from);
    pid_t child = vfork();
    if (child == 0) {
        execlp("cp", "cp", from, to, (char *)NULL);
        _exit(9);
    }
    wait_for(child);
}

static void spawned(int epoch)
{
    int descriptor = create(path_of(epoch, "")), input = input_of_records();
    write_header(descriptor);
    posix_spawn_file_actions_t actions;
    pid_t child;
    char *arguments[] = {"cat", NULL};
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, descriptor, STDOUT_FILENO) == 0);
    CHECK(posix_spawnp(&child, "cat", &actions, NULL, arguments, environ) == 0);
    wait_for(child);
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0 && close(input) == 0 && close(descriptor) == 0);
}

static void executed(int epoch)
{
    int descriptor = create(path_of(epoch, "")), input = input_of_records();
    write_header(descriptor);
    pid_t child = fork();
    if (child == 0) {
        dup2(input, STDIN_FILENO);
        dup2(descriptor, STDOUT_FILENO);
        execlp("cat", "cat", (char *)NULL);
        _exit(9);
    }
    wait_for(child);
    CHECK(close(input) == 0 && close(descriptor) == 0);
}

/* The file is appended to by a command. */
static void appended_by_shell(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_header(descriptor);
    CHECK(close(descriptor) == 0);
    CHECK(close(input_of_records()) == 0);
    run_shell("cat %s >> %s", input_path(), path_of(epoch, ""));
}

const struct habit PROCESSES[] = {
    {"child_writes", child_writes},
    {"child_writes_exit", child_writes_and_exits},
    {"child_shares", child_shares},
    {"raw_clone", child_by_system_call},
    {"child_beside", child_beside},
    {"shell_copies", copied_by_shell},
    {"shell_copies_open", copied_before_close},
    {"shell_makes", dump_made_by_shell},
    {"shell_renames", renamed_by_shell},
    {"shell_moves_away", moved_away_by_shell},
    {"shell_removes", removed_by_shell},
    {"shell_appends", appended_by_shell},
    {"gzip", compressed},
    {"tar", archived},
    {"popen_writes", piped},
    {"vfork_copies", copied_by_vfork},
    {"posix_spawn", spawned},
    {"fork_exec", executed},
    {NULL, NULL},
};
