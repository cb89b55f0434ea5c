/* Names: files that are renamed, linked, removed and reached in other ways than by the path of their creation. */
#include "habits.h"

#include <sys/syscall.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

static void renamed(int epoch)
{
    const char *before = path_of(epoch, ".tmp");
    write_file(before);
    CHECK(rename(before, path_of(epoch, "")) == 0);
}

static void renamed_later(int epoch)
{
    write_file(path_of(epoch, ".tmp"));
    meet();
    CHECK(rename(path_of(epoch, ".tmp"), path_of(epoch, "")) == 0);
}

/* The file is renamed while it is being written. */
static void renamed_open(int epoch)
{
    const char *before = path_of(epoch, ".tmp");
    int descriptor = create(before);
    write_header(descriptor);
    CHECK(rename(before, path_of(epoch, "")) == 0);
    write_records(descriptor);
    CHECK(close(descriptor) == 0);
}

static void renamed_at(int epoch)
{
    write_file(path_of(epoch, ".tmp"));
    int parent = open(in_folder("E.%d", epoch), O_RDONLY | O_DIRECTORY);
    char before[32], after[32];
    snprintf(before, sizeof before, "rows.%d.tmp", rank);
    snprintf(after, sizeof after, "rows.%d", rank);
    CHECK(parent >= 0 && renameat(parent, before, parent, after) == 0 && close(parent) == 0);
}

static void renamed_without_replacing(int epoch)
{
    write_file(path_of(epoch, ".tmp"));
    CHECK(renameat2(AT_FDCWD, path_of(epoch, ".tmp"), AT_FDCWD, path_of(epoch, ""), RENAME_NOREPLACE) == 0);
}

static void renamed_by_system_call(int epoch)
{
    write_file(path_of(epoch, ".tmp"));
    CHECK(syscall(SYS_renameat2, AT_FDCWD, path_of(epoch, ".tmp"), AT_FDCWD, path_of(epoch, ""), 0) == 0);
}

/* A complete file and an empty one exchange their names. */
static void exchanged(int epoch)
{
    write_file(path_of(epoch, ".new"));
    CHECK(close(create(path_of(epoch, ""))) == 0);
    CHECK(renameat2(AT_FDCWD, path_of(epoch, ".new"), AT_FDCWD, path_of(epoch, ""), RENAME_EXCHANGE) == 0);
    CHECK(unlink(path_of(epoch, ".new")) == 0);
}

/* An earlier version of the file is replaced by the rename. */
static void renamed_over(int epoch)
{
    fill(epoch, rank, 1);
    write_file(path_of(epoch, ""));
    fill(epoch, rank, 0);
    renamed(epoch);
}

static void renamed_away(int epoch)
{
    write_file(path_of(epoch, ""));
    CHECK(rename(path_of(epoch, ""), path_of(epoch, ".done")) == 0);
}

static void renamed_twice(int epoch)
{
    write_file(path_of(epoch, ""));
    CHECK(rename(path_of(epoch, ""), path_of(epoch, ".checked")) == 0);
    CHECK(rename(path_of(epoch, ".checked"), path_of(epoch, "")) == 0);
}

static void made_by_mkstemp(int epoch)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.XXXXXX", path_of(epoch, ".part"));
    int descriptor = mkstemp(path);
    CHECK(descriptor >= 0);
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
    CHECK(rename(path, path_of(epoch, "")) == 0);
}

static void linked_and_unlinked(int epoch)
{
    write_file(path_of(epoch, ".tmp"));
    CHECK(link(path_of(epoch, ".tmp"), path_of(epoch, "")) == 0);
    CHECK(unlink(path_of(epoch, ".tmp")) == 0);
}

/* The dump has a second name, which is no dump's. */
static void linked_away(int epoch)
{
    write_file(path_of(epoch, ""));
    CHECK(linkat(AT_FDCWD, path_of(epoch, ""), AT_FDCWD, path_of(epoch, ".hard"), 0) == 0);
}

static void unnamed_and_linked(int epoch)
{
    char path[64];
    CHECK(path_of(epoch, "") != NULL);
    int descriptor = open(in_folder("E.%d", epoch), O_TMPFILE | O_WRONLY, 0644);
    CHECK(descriptor >= 0);
    write_content(descriptor);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    CHECK(linkat(AT_FDCWD, path, AT_FDCWD, path_of(epoch, ""), AT_SYMLINK_FOLLOW) == 0);
    CHECK(close(descriptor) == 0);
}

static void linked_symbolically(int epoch)
{
    char header[HEADER_BYTES];
    write_file(path_of(epoch, ""));
    const char *latest = in_folder("latest.%d", rank);
    char target[64];
    snprintf(target, sizeof target, "E.%d/rows.%d", epoch, rank);
    unlink(latest);
    CHECK(symlink(target, latest) == 0);
    int descriptor = open(latest, O_RDONLY);
    CHECK(descriptor >= 0 && read(descriptor, header, sizeof header) == sizeof header && close(descriptor) == 0);
    CHECK(memcmp(header, HEADER, sizeof header) == 0);
}

static void removed_by_turns(int epoch)
{
    write_file(path_of(epoch, ""));
    if (epoch > 2)
        CHECK(unlink(path_of(epoch - 2, "")) == 0);
}

static void removed_by_other_calls(int epoch)
{
    write_file(path_of(epoch, ""));
    if (epoch == 3)
        CHECK(unlinkat(AT_FDCWD, path_of(1, ""), 0) == 0);
    if (epoch == 4)
        CHECK(remove(path_of(2, "")) == 0);
}

/* The program gives up an epoch while its file is open. */
static void given_up(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_header(descriptor);
    if (epoch == 3)
        CHECK(unlink(path_of(epoch, "")) == 0);
    write_records(descriptor);
    CHECK(close(descriptor) == 0);
}

static void removed_and_written_again(int epoch)
{
    fill(epoch, rank, 1);
    write_file(path_of(epoch, ""));
    CHECK(unlink(path_of(epoch, "")) == 0);
    fill(epoch, rank, 0);
    write_file(path_of(epoch, ""));
}

static void overwritten(int epoch)
{
    fill(epoch, rank, 1);
    write_file(path_of(epoch, ""));
    fill(epoch, rank, 0);
    write_file(path_of(epoch, ""));
}

static void overwritten_later(int epoch)
{
    fill(epoch, rank, 1);
    write_file(path_of(epoch, ""));
    meet();
    fill(epoch, rank, 0);
    write_file(path_of(epoch, ""));
}

static void empty_file_beside(int epoch)
{
    write_file(path_of(epoch, ""));
    CHECK(close(create(path_of_rank(epoch, ranks + rank, ""))) == 0);
}

static void created_exclusively(int epoch)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL, descriptor = open(path_of(epoch, ""), flags, 0644);
    CHECK(descriptor >= 0);
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
    CHECK(open(path_of(epoch, ""), flags, 0644) == -1 && errno == EEXIST);
}

const struct habit NAMES[] = {
    {"rename", renamed},
    {"rename_later", renamed_later},
    {"rename_open", renamed_open},
    {"renameat", renamed_at},
    {"renameat2", renamed_without_replacing},
    {"raw_rename", renamed_by_system_call},
    {"exchange", exchanged},
    {"rename_over", renamed_over},
    {"rename_away", renamed_away},
    {"rename_twice", renamed_twice},
    {"mkstemp", made_by_mkstemp},
    {"link_unlink", linked_and_unlinked},
    {"link_away", linked_away},
    {"tmpfile_linkat", unnamed_and_linked},
    {"symlink_latest", linked_symbolically},
    {"rolling_deletion", removed_by_turns},
    {"unlinkat_remove", removed_by_other_calls},
    {"given_up", given_up},
    {"removed_and_again", removed_and_written_again},
    {"overwritten", overwritten},
    {"overwritten_later", overwritten_later},
    {"empty_file", empty_file_beside},
    {"exclusive", created_exclusively},
    {NULL, NULL},
};
