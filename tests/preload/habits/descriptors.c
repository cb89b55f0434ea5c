/* Descriptors: how files are opened, written, duplicated and closed through them. */
#include "habits.h"

#include <linux/openat2.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define HIGH 500 /* far above the descriptors of MPI */
#define PIECES 8

static void write_and_close(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
}

static void created(int epoch)
{
    int descriptor = creat(path_of(epoch, ""), 0640);
    CHECK(descriptor >= 0);
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
}

static void pwrite_piece(int descriptor, size_t piece, size_t pieces)
{
    size_t from = piece * (count / pieces), to = piece + 1 == pieces ? count : from + count / pieces;
    size_t size = (to - from) * sizeof *records;
    CHECK(pwrite(descriptor, records + from, size, (off_t)(HEADER_BYTES + from * sizeof *records)) == (ssize_t)size);
}

static void pwrite_backwards(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    for (size_t piece = PIECES; piece-- > 0;)
        pwrite_piece(descriptor, piece, PIECES);
    CHECK(pwrite(descriptor, HEADER, HEADER_BYTES, 0) == HEADER_BYTES);
    CHECK(close(descriptor) == 0);
}

static void vectors(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    size_t half = count / 2 * sizeof *records;
    struct iovec parts[] = {{HEADER, HEADER_BYTES}, {records, half}, {(char *)records + half, bytes - half}};
    CHECK(writev(descriptor, parts, 3) == (ssize_t)(HEADER_BYTES + bytes));
    CHECK(close(descriptor) == 0);
}

static void vectors_at_offsets(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    struct iovec part = {records, bytes}, header = {HEADER, HEADER_BYTES};
    CHECK(pwritev2(descriptor, &part, 1, HEADER_BYTES, 0) == (ssize_t)bytes);
    CHECK(pwritev(descriptor, &header, 1, 0) == HEADER_BYTES);
    CHECK(close(descriptor) == 0);
}

static void duplicated(int epoch)
{
    int first = create(path_of(epoch, "")), second = dup(first);
    CHECK(second >= 0);
    write_header(first);
    CHECK(close(first) == 0);
    write_all(second, records, bytes / 2);
    int third = fcntl(second, F_DUPFD_CLOEXEC, HIGH);
    CHECK(third >= HIGH && close(second) == 0);
    meet_once();
    write_all(third, (char *)records + bytes / 2, bytes - bytes / 2);
    CHECK(close(third) == 0);
}

/* The descriptor of each epoch's file takes the number of the previous one. */
static void dup2_onto(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    CHECK(dup2(descriptor, HIGH) == HIGH && close(descriptor) == 0);
    write_content(HIGH);
    CHECK(epoch < last_epoch || close(HIGH) == 0);
}

static void dup3_onto(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_header(descriptor);
    CHECK(dup3(descriptor, HIGH, O_CLOEXEC) == HIGH && close(descriptor) == 0);
    write_records(HIGH);
    CHECK(epoch < last_epoch || close(HIGH) == 0);
}

/* A file that is no dump takes the number, and is written. */
static void stranger_onto(int epoch)
{
    int descriptor = create(path_of(epoch, "")), log = open(in_folder("log.%d", rank), O_WRONLY | O_CREAT | O_APPEND, 0644);
    write_content(descriptor);
    CHECK(log >= 0 && dup2(log, descriptor) == descriptor && close(log) == 0);
    write_all(descriptor, "a line\n", 7);
    CHECK(close(descriptor) == 0);
}

/* A closed number goes to a file that no intercepted call opens. */
static void use_number(int descriptor)
{
    int memory = memfd_create("memory", 0);
    CHECK(memory == descriptor && ftruncate(memory, 8192) == 0);
    char *content = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    CHECK(content != MAP_FAILED);
    memset(content, 7, 8192);
    write_header(memory);
    CHECK(munmap(content, 8192) == 0 && close(memory) == 0);
}

static void range_closed(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_content(descriptor);
    CHECK(close_range((unsigned)descriptor, (unsigned)descriptor, 0) == 0);
    use_number(descriptor);
}

static void closed_from(int epoch)
{
    int descriptor = create(path_of(epoch, "")), high = fcntl(descriptor, F_DUPFD, HIGH);
    CHECK(high >= HIGH && close(descriptor) == 0);
    write_content(high);
    closefrom(HIGH);
    CHECK(fcntl(high, F_GETFD) == -1);
}

static void every_number_closed(int epoch)
{
    int descriptor = create(path_of(epoch, "")), high = fcntl(descriptor, F_DUPFD, HIGH);
    CHECK(high >= HIGH && close(descriptor) == 0);
    write_content(high);
    for (int number = HIGH; number < 1024; number++)
        close(number);
}

static void sparse(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    size_t half = count / 2 * sizeof *records;
    CHECK(lseek(descriptor, (off_t)(HEADER_BYTES + half), SEEK_SET) > 0);
    write_all(descriptor, (char *)records + half, bytes - half);
    CHECK(lseek(descriptor, 0, SEEK_SET) == 0);
    write_header(descriptor);
    write_all(descriptor, records, half);
    CHECK(close(descriptor) == 0);
}

static void sized_and_filled_backwards(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    CHECK(ftruncate(descriptor, (off_t)(HEADER_BYTES + bytes)) == 0);
    for (size_t piece = PIECES; piece-- > 0;)
        pwrite_piece(descriptor, piece, PIECES);
    CHECK(pwrite(descriptor, HEADER, HEADER_BYTES, 0) == HEADER_BYTES);
    CHECK(close(descriptor) == 0);
}

static void cut(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_content(descriptor);
    write_all(descriptor, records, 100000);
    CHECK(ftruncate(descriptor, (off_t)(HEADER_BYTES + bytes)) == 0);
    CHECK(close(descriptor) == 0);
}

static void append_flag(int epoch)
{
    const char *path = path_of(epoch, "");
    unlink(path);
    for (int half = 0; half < 2; half++) {
        int descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
        CHECK(descriptor >= 0);
        if (half == 0)
            write_header(descriptor);
        write_all(descriptor, (char *)records + (size_t)half * (bytes / 2), bytes / 2);
        CHECK(close(descriptor) == 0);
    }
}

static void append_set_later(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    CHECK(fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_APPEND) == 0);
    write_header(descriptor);
    CHECK(lseek(descriptor, 0, SEEK_SET) == 0);
    write_records(descriptor);
    CHECK(close(descriptor) == 0);
}

static void direct(int epoch)
{
    size_t block = 4096, size = (HEADER_BYTES + bytes + block - 1) / block * block;
    char *buffer = aligned_alloc(block, size);
    CHECK(buffer != NULL);
    memset(buffer, 0, size);
    memcpy(buffer, HEADER, HEADER_BYTES);
    memcpy(buffer + HEADER_BYTES, records, bytes);
    int descriptor = open(path_of(epoch, ""), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0644);
    CHECK(descriptor >= 0);
    write_all(descriptor, buffer, size);
    CHECK(ftruncate(descriptor, (off_t)(HEADER_BYTES + bytes)) == 0);
    CHECK(close(descriptor) == 0);
    free(buffer);
}

static void raw_write_all(int descriptor, const void *data, size_t size)
{
    CHECK(syscall(SYS_write, descriptor, data, size) == (long)size);
}

static void raw_open(int epoch)
{
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path_of(epoch, ""), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(descriptor >= 0);
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
}

static void raw_open2(int epoch)
{
    struct open_how how = {.flags = O_WRONLY | O_CREAT | O_TRUNC, .mode = 0644};
    int descriptor = (int)syscall(SYS_openat2, AT_FDCWD, path_of(epoch, ""), &how, sizeof how);
    CHECK(descriptor >= 0);
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
}

static void raw_write(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    raw_write_all(descriptor, HEADER, HEADER_BYTES);
    raw_write_all(descriptor, records, bytes);
    CHECK(close(descriptor) == 0);
}

static void raw_close(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_content(descriptor);
    CHECK(syscall(SYS_close, descriptor) == 0);
    use_number(descriptor);
}

static void raw_calls(int epoch)
{
    const char *path = path_of(epoch, "");
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(descriptor >= 0);
    raw_write_all(descriptor, HEADER, HEADER_BYTES);
    CHECK(syscall(SYS_pwrite64, descriptor, records, bytes, (long)HEADER_BYTES) == (long)bytes);
    CHECK(syscall(SYS_ftruncate, descriptor, HEADER_BYTES + bytes) == 0);
    int second = (int)syscall(SYS_dup, descriptor);
    CHECK(second >= 0 && syscall(SYS_close, descriptor) == 0 && syscall(SYS_close, second) == 0);
}

static void two_descriptors(int epoch)
{
    const char *path = path_of(epoch, "");
    int first = create(path), second = open(path, O_WRONLY);
    CHECK(second >= 0 && lseek(second, HEADER_BYTES, SEEK_SET) == HEADER_BYTES);
    write_records(second);
    CHECK(close(second) == 0);
    meet_once();
    write_header(first);
    CHECK(close(first) == 0);
}

static void reopened_by_number(int epoch)
{
    char path[64];
    int first = create(path_of(epoch, ""));
    write_header(first);
    snprintf(path, sizeof path, "/proc/self/fd/%d", first);
    int second = open(path, O_WRONLY | O_APPEND);
    CHECK(second >= 0 && close(first) == 0);
    write_records(second);
    CHECK(close(second) == 0);
}

/* The descriptor is sent through a socket, and used as it arrives. */
static void sent(int epoch)
{
    int ends[2], descriptor = create(path_of(epoch, "")), received;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    char byte = 0, control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *about = CMSG_FIRSTHDR(&message);
    *about = (struct cmsghdr){CMSG_LEN(sizeof descriptor), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(about), &descriptor, sizeof descriptor);
    CHECK(sendmsg(ends[0], &message, 0) == 1 && close(descriptor) == 0);
    CHECK(recvmsg(ends[1], &message, 0) == 1);
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
    write_content(received);
    CHECK(close(received) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void synced(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    CHECK(posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);
    write_content(descriptor);
    CHECK(sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE) == 0);
    CHECK(fdatasync(descriptor) == 0 && fsync(descriptor) == 0);
    CHECK(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) == 0);
    CHECK(close(descriptor) == 0);
}

static void locked(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(flock(descriptor, LOCK_EX) == 0);
    CHECK(fcntl(descriptor, F_SETLKW, &all) == 0);
    write_content(descriptor);
    CHECK(lseek(descriptor, 0, SEEK_SET) == 0 && lockf(descriptor, F_LOCK, 100) == 0 && lockf(descriptor, F_ULOCK, 100) == 0);
    CHECK(flock(descriptor, LOCK_UN) == 0);
    CHECK(close(descriptor) == 0);
}

struct part {
    int descriptor;
    size_t number;
};

static void *write_part(void *given)
{
    struct part *part = given;
    pwrite_piece(part->descriptor, part->number, PIECES);
    return NULL;
}

static void threads(int epoch)
{
    struct part parts[PIECES];
    pthread_t writers[PIECES];
    int descriptor = create(path_of(epoch, ""));
    for (size_t number = 0; number < PIECES; number++) {
        parts[number] = (struct part){descriptor, number};
        CHECK(pthread_create(&writers[number], NULL, write_part, &parts[number]) == 0);
    }
    write_header(descriptor);
    for (size_t number = 0; number < PIECES; number++)
        CHECK(pthread_join(writers[number], NULL) == 0);
    CHECK(close(descriptor) == 0);
}

static void *write_whole_file(void *path)
{
    write_file(path);
    return NULL;
}

static void thread_beside(int epoch)
{
    pthread_t writer;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", path_of(epoch, ""));
    CHECK(pthread_create(&writer, NULL, write_whole_file, path) == 0);
    meet();
    CHECK(pthread_join(writer, NULL) == 0);
}

const struct habit DESCRIPTORS[] = {
    {"write", write_and_close},
    {"creat", created},
    {"pwrite_backwards", pwrite_backwards},
    {"writev", vectors},
    {"pwritev2", vectors_at_offsets},
    {"dup", duplicated},
    {"dup2_onto", dup2_onto},
    {"dup3_onto", dup3_onto},
    {"stranger_onto", stranger_onto},
    {"close_range", range_closed},
    {"closefrom", closed_from},
    {"every_number_closed", every_number_closed},
    {"sparse", sparse},
    {"filled_backwards", sized_and_filled_backwards},
    {"cut", cut},
    {"append_flag", append_flag},
    {"append_set_later", append_set_later},
    {"direct", direct},
    {"raw_open", raw_open},
    {"raw_open2", raw_open2},
    {"raw_write", raw_write},
    {"raw_close", raw_close},
    {"raw_calls", raw_calls},
    {"two_descriptors", two_descriptors},
    {"reopened_by_number", reopened_by_number},
    {"sent", sent},
    {"synced", synced},
    {"locked", locked},
    {"threads", threads},
    {"thread_beside", thread_beside},
    {NULL, NULL},
};
