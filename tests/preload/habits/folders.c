/* Folders that are renamed or reached in other ways, and calls that inquire about files or change their attributes. */
#include "habits.h"

#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

static void make_folder(const char *path)
{
    CHECK(mkdir(path, 0777) == 0 || errno == EEXIST);
}

/* A folder gets its final name when all ranks have written into it. */
static void renamed_folder(int epoch)
{
    make_folder(in_folder("tmp.E.%d", epoch));
    write_file(in_folder("tmp.E.%d/rows.%d", epoch, rank));
    meet_once();
    if (rank == 0)
        CHECK(rename(in_folder("tmp.E.%d", epoch), in_folder("E.%d", epoch)) == 0);
    meet_once();
}

/* As above; the folder has names that match from the beginning, since only its parent is renamed. */
static void renamed_parent(int epoch)
{
    make_folder(in_folder("part.%d", epoch));
    make_folder(in_folder("part.%d/E.%d", epoch, epoch));
    write_file(in_folder("part.%d/E.%d/rows.%d", epoch, epoch, rank));
    meet_once();
    if (rank == 0)
        CHECK(rename(in_folder("part.%d", epoch), in_folder("whole.%d", epoch)) == 0);
    meet_once();
}

static void through_folder_link(int epoch)
{
    CHECK(path_of(epoch, "") != NULL);
    if (symlink(".", in_folder("link")) != 0)
        CHECK(errno == EEXIST);
    write_file(in_folder("link/E.%d/rows.%d", epoch, rank));
}

static void with_dots(int epoch)
{
    CHECK(path_of(epoch, "") != NULL);
    write_file(in_folder("E.%d/../E.%d/.//rows.%d", epoch, epoch, rank));
}

static void relative(int epoch)
{
    char before[PATH_MAX], name[64];
    CHECK(getcwd(before, sizeof before) != NULL && path_of(epoch, "") != NULL);
    CHECK(chdir(in_folder("E.%d", epoch)) == 0);
    snprintf(name, sizeof name, "rows.%d", rank);
    write_file(name);
    CHECK(chdir(before) == 0);
}

/* The working directory changes while the file is open, and its name is used afterwards. */
static void relative_and_away(int epoch)
{
    char before[PATH_MAX], name[64];
    CHECK(getcwd(before, sizeof before) != NULL && path_of(epoch, "") != NULL);
    CHECK(chdir(in_folder(".")) == 0);
    snprintf(name, sizeof name, "E.%d/rows.%d", epoch, rank);
    int descriptor = create(name);
    CHECK(chdir("/") == 0);
    write_content(descriptor);
    CHECK(close(descriptor) == 0 && chdir(before) == 0);
}

static void relative_to_descriptor(int epoch)
{
    char name[64];
    CHECK(path_of(epoch, "") != NULL);
    int parent = open(in_folder("E.%d", epoch), O_RDONLY | O_DIRECTORY);
    snprintf(name, sizeof name, "rows.%d", rank);
    int descriptor = openat(parent, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(parent >= 0 && descriptor >= 0 && close(parent) == 0);
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
}

static void through_fchdir(int epoch)
{
    char name[64];
    CHECK(path_of(epoch, "") != NULL);
    int before = open(".", O_PATH | O_DIRECTORY), parent = open(in_folder("E.%d", epoch), O_PATH | O_DIRECTORY);
    CHECK(before >= 0 && parent >= 0 && fchdir(parent) == 0);
    snprintf(name, sizeof name, "rows.%d", rank);
    write_file(name);
    CHECK(fchdir(before) == 0 && close(before) == 0 && close(parent) == 0);
}

const struct habit FOLDERS[] = {
    {"rename_folder", renamed_folder},
    {"rename_parent", renamed_parent},
    {"folder_link", through_folder_link},
    {"dots", with_dots},
    {"chdir", relative},
    {"chdir_away", relative_and_away},
    {"openat", relative_to_descriptor},
    {"fchdir", through_fchdir},
    {NULL, NULL},
};

/* Checks what a path says about a complete file. */
static void inquire(const char *path)
{
    struct stat about;
    struct statx more;
    char resolved[PATH_MAX];
    off_t size = (off_t)(HEADER_BYTES + bytes);
    CHECK(stat(path, &about) == 0 && about.st_size == size && S_ISREG(about.st_mode));
    CHECK(lstat(path, &about) == 0 && about.st_size == size);
    CHECK(fstatat(AT_FDCWD, path, &about, 0) == 0 && about.st_size == size);
    CHECK(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &more) == 0 && (off_t)more.stx_size == size);
    CHECK(access(path, R_OK | W_OK) == 0 && faccessat(AT_FDCWD, path, F_OK, 0) == 0 && euidaccess(path, R_OK) == 0);
    CHECK(realpath(path, resolved) != NULL && stat(resolved, &about) == 0);
}

static void inquired_before_close(int epoch)
{
    const char *path = path_of(epoch, "");
    int descriptor = create(path);
    struct stat about;
    CHECK(fstat(descriptor, &about) == 0 && about.st_size == 0);
    write_content(descriptor);
    CHECK(fstat(descriptor, &about) == 0 && about.st_size == (off_t)(HEADER_BYTES + bytes));
    inquire(path);
    CHECK(close(descriptor) == 0);
}

static void inquired_after_close(int epoch)
{
    const char *path = path_of(epoch, "");
    write_file(path);
    inquire(path);
}

static void inquired_by_system_call(int epoch)
{
    struct statx about;
    write_file(path_of(epoch, ""));
    CHECK(syscall(SYS_statx, AT_FDCWD, path_of(epoch, ""), 0, STATX_SIZE, &about) == 0);
    CHECK(about.stx_size == HEADER_BYTES + bytes);
    CHECK(syscall(SYS_faccessat, AT_FDCWD, path_of(epoch, ""), R_OK) == 0);
}

static void changed_before_close(int epoch)
{
    const char *path = path_of(epoch, "");
    int descriptor = create(path);
    write_header(descriptor);
    CHECK(chmod(path, 0600) == 0 && chown(path, geteuid(), getegid()) == 0);
    CHECK(truncate(path, HEADER_BYTES) == 0);
    write_records(descriptor);
    CHECK(close(descriptor) == 0);
}

static void mode_changed(int epoch)
{
    const char *path = path_of(epoch, "");
    struct stat about;
    write_file(path);
    CHECK(chmod(path, 0600) == 0 && fchmodat(AT_FDCWD, path, 0640, 0) == 0);
    CHECK(stat(path, &about) == 0 && (about.st_mode & 0777) == 0640);
}

static void owner_changed(int epoch)
{
    const char *path = path_of(epoch, "");
    write_file(path);
    CHECK(chown(path, geteuid(), getegid()) == 0 && lchown(path, geteuid(), (gid_t)-1) == 0);
    CHECK(fchownat(AT_FDCWD, path, (uid_t)-1, getegid(), 0) == 0);
}

static void times_changed(int epoch)
{
    const char *path = path_of(epoch, "");
    struct timespec times[] = {{1000, 0}, {2000, 0}};
    struct timeval old[] = {{500, 0}, {600, 0}};
    struct stat about;
    write_file(path);
    CHECK(utimes(path, old) == 0 && utimensat(AT_FDCWD, path, times, 0) == 0);
    CHECK(stat(path, &about) == 0 && about.st_mtime == 2000);
}

static void truncated_by_name(int epoch)
{
    const char *path = path_of(epoch, "");
    write_file(path);
    FILE *stream = fopen(path, "a");
    CHECK(stream != NULL && fwrite("garbage", 7, 1, stream) == 1 && fclose(stream) == 0);
    CHECK(truncate(path, (off_t)(HEADER_BYTES + bytes)) == 0);
}

static void attributed(int epoch)
{
    const char *path = path_of(epoch, "");
    char value[8];
    write_file(path);
    if (setxattr(path, "user.step", "12", 2, 0) != 0) {
        CHECK(errno == ENOTSUP);
        return;
    }
    CHECK(getxattr(path, "user.step", value, sizeof value) == 2);
}

static void file_systems(int epoch)
{
    const char *path = path_of(epoch, "");
    struct statvfs about;
    struct statfs other;
    int descriptor = create(path);
    write_content(descriptor);
    CHECK(fstatvfs(descriptor, &about) == 0 && fstatfs(descriptor, &other) == 0);
    CHECK(close(descriptor) == 0);
    CHECK(statvfs(path, &about) == 0 && statfs(path, &other) == 0);
}

static void masked(int epoch)
{
    mode_t before = umask(0027);
    write_file(path_of(epoch, ""));
    CHECK(umask(before) == 0027);
}

static void mode_of_descriptor(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_content(descriptor);
    struct timespec times[] = {{1000, 0}, {2000, 0}};
    CHECK(fchmod(descriptor, 0604) == 0 && fchown(descriptor, (uid_t)-1, getegid()) == 0 && futimens(descriptor, times) == 0);
    CHECK(close(descriptor) == 0);
}

static void compare(FILE *stream)
{
    struct record block[1000];
    char header[HEADER_BYTES];
    CHECK(fread(header, HEADER_BYTES, 1, stream) == 1 && memcmp(header, HEADER, HEADER_BYTES) == 0);
    for (size_t from = 0, got; from < count; from += got) {
        got = fread(block, sizeof *block, 1000, stream);
        CHECK(got > 0 && memcmp(block, records + from, got * sizeof *block) == 0);
    }
    CHECK(fgetc(stream) == EOF && fclose(stream) == 0);
}

static void read_back(int epoch)
{
    write_file(path_of(epoch, ""));
    FILE *stream = fopen(path_of(epoch, ""), "r");
    CHECK(stream != NULL);
    compare(stream);
}

/* Another rank's file is read as soon as it is complete. */
static void read_of_other_rank(int epoch)
{
    int other = (rank + 1) % ranks;
    write_file(path_of(epoch, ""));
    meet_once();
    FILE *stream = fopen(path_of_rank(epoch, other, ""), "r");
    if (stream == NULL) {
        CHECK(errno == ENOENT);
        missed = 1;
        return;
    }
    fill(epoch, other, 0);
    compare(stream);
}

static void read_earlier(int epoch)
{
    write_file(path_of(epoch, ""));
    if (epoch == 1)
        return;
    FILE *stream = fopen(path_of(epoch - 1, ""), "r");
    if (stream == NULL) {
        CHECK(errno == ENOENT);
        missed = 1;
        return;
    }
    fill(epoch - 1, rank, 0);
    compare(stream);
}

/* A copy that is no dump is made by reading the dump. */
static void copied(int epoch)
{
    char block[65536];
    write_file(path_of(epoch, ""));
    int input = open(path_of(epoch, ""), O_RDONLY), output = create(path_of(epoch, ".copy"));
    ssize_t got;
    CHECK(input >= 0);
    while ((got = read(input, block, sizeof block)) > 0)
        write_all(output, block, (size_t)got);
    CHECK(got == 0 && close(input) == 0 && close(output) == 0);
}

const struct habit INQUIRIES[] = {
    {"stat_before_close", inquired_before_close},
    {"stat_after_close", inquired_after_close},
    {"raw_stat", inquired_by_system_call},
    {"chmod_before_close", changed_before_close},
    {"chmod", mode_changed},
    {"chown", owner_changed},
    {"utimensat", times_changed},
    {"truncate", truncated_by_name},
    {"setxattr", attributed},
    {"statvfs", file_systems},
    {"umask", masked},
    {"fchmod", mode_of_descriptor},
    {"read_back", read_back},
    {"read_other_rank", read_of_other_rank},
    {"read_earlier", read_earlier},
    {"copy", copied},
    {NULL, NULL},
};
