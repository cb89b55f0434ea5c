/*
 * Random sequences of calls that write one dump: the file is opened in one way, its pieces are written in others, between
 * which it is inquired about, duplicated or renamed, and it is closed in one way. The seed determines the sequence. With
 * HABITS_TRACE set, the steps are printed.
 */
#include "habits.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PIECES 6
#define HIGH 600

static uint64_t state;

/* SplitMix64. */
static unsigned draw(unsigned below)
{
    uint64_t mixed = state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((mixed ^ mixed >> 31) % below);
}

static void trace(const char *step, unsigned choice)
{
    if (getenv("HABITS_TRACE"))
        fprintf(stderr, "habits: rank %d: %s %u\n", rank, step, choice);
}

/* The file that is being written: by a stream, if there is one, and by the descriptor otherwise. */
struct output {
    FILE *stream;
    int descriptor;
    /* Its present name, and the one that it shall have. An unnamed file has none at first. */
    char now[PATH_MAX + 8], final[PATH_MAX];
    int is_unnamed;
};

static void open_stream(struct output *output, const char *mode)
{
    static FILE *kept;
    if (draw(3) == 0 && kept != NULL) {
        output->stream = freopen(output->now, mode, kept);
        kept = NULL;
    } else {
        output->stream = fopen(output->now, mode);
    }
    CHECK(output->stream != NULL);
    output->descriptor = fileno(output->stream);
    if (draw(4) == 0 && kept == NULL)
        CHECK((kept = fopen("/dev/null", "w")) != NULL);
}

static void open_output(struct output *output, int epoch)
{
    *output = (struct output){.descriptor = -1};
    snprintf(output->final, PATH_MAX, "%s", path_of(epoch, ""));
    unsigned name = draw(4), way = draw(8);
    trace("name", name);
    trace("open", way);
    snprintf(output->now, sizeof output->now, "%s%s", output->final, name == 0 ? ".tmp" : "");
    int flags = O_RDWR | O_CREAT | O_TRUNC;
    switch (way) {
    case 0: output->descriptor = open(output->now, flags, 0644); break;
    case 1: output->descriptor = openat(AT_FDCWD, output->now, flags | O_CLOEXEC, 0600); break;
    case 2: output->descriptor = (int)syscall(SYS_openat, AT_FDCWD, output->now, flags, 0644); break;
    case 3: output->descriptor = open(output->now, O_RDWR | O_CREAT | O_EXCL, 0644); break;
    case 4:
        output->is_unnamed = 1;
        output->descriptor = open(in_folder("E.%d", epoch), O_TMPFILE | O_RDWR, 0644);
        break;
    case 5: CHECK((output->stream = fdopen(open(output->now, flags, 0644), "w+")) != NULL); break;
    default: open_stream(output, way == 6 ? "w+" : "w+e");
    }
    if (output->stream)
        output->descriptor = fileno(output->stream);
    CHECK(output->descriptor >= 0);
    if (output->stream && draw(3) == 0) {
        static char buffer[1 << 16];
        CHECK(setvbuf(output->stream, buffer, draw(2) ? _IOFBF : _IONBF, draw(2) ? sizeof buffer : 100) == 0);
    }
}

static void transfer(int descriptor, const char *data, size_t size, int by_sendfile)
{
    int input = create(in_folder("piece.%d", rank));
    write_all(input, data, size);
    CHECK(lseek(input, 0, SEEK_SET) == 0);
    for (size_t rest = size; rest > 0;) {
        ssize_t moved = by_sendfile ? sendfile(descriptor, input, NULL, rest)
                                    : copy_file_range(input, NULL, descriptor, NULL, rest, 0);
        CHECK(moved > 0);
        rest -= (size_t)moved;
    }
    CHECK(close(input) == 0);
}

static void write_mapped(int descriptor, off_t at, const char *data, size_t size)
{
    struct stat about;
    CHECK(fstat(descriptor, &about) == 0);
    if (about.st_size < at + (off_t)size)
        CHECK(ftruncate(descriptor, at + (off_t)size) == 0);
    off_t page = at / 4096 * 4096;
    size_t before = (size_t)(at - page);
    char *content = mmap(NULL, before + size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, page);
    CHECK(content != MAP_FAILED);
    memcpy(content + before, data, size);
    CHECK(munmap(content, before + size) == 0);
}

/* Writes bytes by the descriptor, and leaves its offset behind them. */
static void write_by_descriptor(int descriptor, off_t at, char *data, size_t size)
{
    unsigned way = draw(9);
    trace("write", way);
    struct iovec halves[] = {{data, size / 2}, {data + size / 2, size - size / 2}};
    CHECK(lseek(descriptor, at, SEEK_SET) == at);
    switch (way) {
    case 0:
    case 1: write_all(descriptor, data, size); break;
    case 2: CHECK(pwrite(descriptor, data, size, at) == (ssize_t)size); break;
    case 3: CHECK(writev(descriptor, halves, 2) == (ssize_t)size); break;
    case 4: CHECK(pwritev2(descriptor, halves, 2, at, 0) == (ssize_t)size); break;
    case 5: CHECK(syscall(SYS_write, descriptor, data, size) == (long)size); break;
    case 6: write_mapped(descriptor, at, data, size); break;
    case 7: transfer(descriptor, data, size, 1); break;
    default: transfer(descriptor, data, size, 0);
    }
    CHECK(lseek(descriptor, at + (off_t)size, SEEK_SET) == at + (off_t)size);
}

static void write_piece(struct output *output, off_t at, char *data, size_t size)
{
    if (output->stream == NULL) {
        write_by_descriptor(output->descriptor, at, data, size);
    } else if (draw(3) != 0) {
        trace("fwrite", 0);
        CHECK(fseeko(output->stream, at, SEEK_SET) == 0);
        CHECK(fwrite(data, 1, size, output->stream) == size);
    } else {
        CHECK(fflush(output->stream) == 0);
        write_by_descriptor(output->descriptor, at, data, size);
    }
}

/* Gives the descriptor another number. Streams keep theirs. */
static void renumber(struct output *output)
{
    int old = output->descriptor;
    if (output->stream)
        return;
    switch (draw(3)) {
    case 0: output->descriptor = dup(old); break;
    case 1: output->descriptor = fcntl(old, F_DUPFD_CLOEXEC, HIGH); break;
    default: output->descriptor = old == HIGH + 100 ? dup(old) : dup3(old, HIGH + 100, O_CLOEXEC);
    }
    CHECK(output->descriptor >= 0 && close(old) == 0);
}

static void rename_output(struct output *output, const char *to)
{
    if (output->is_unnamed || strcmp(output->now, to) == 0)
        return;
    unsigned way = draw(4);
    trace("rename", way);
    switch (way) {
    case 0: CHECK(rename(output->now, to) == 0); break;
    case 1: CHECK(renameat(AT_FDCWD, output->now, AT_FDCWD, to) == 0); break;
    case 2: CHECK(syscall(SYS_renameat2, AT_FDCWD, output->now, AT_FDCWD, to, 0) == 0); break;
    default: CHECK(link(output->now, to) == 0 && unlink(output->now) == 0);
    }
    snprintf(output->now, sizeof output->now, "%s", to);
}

static void disturb(struct output *output, size_t written)
{
    struct stat about;
    char other[PATH_MAX + 8];
    unsigned way = draw(9);
    trace("between", way);
    if (output->stream && draw(2))
        CHECK(fflush(output->stream) == 0);
    switch (way) {
    case 0: renumber(output); break;
    case 1: CHECK(fstat(output->descriptor, &about) == 0); break;
    case 2: CHECK(output->is_unnamed || stat(output->now, &about) == 0); break;
    case 3: CHECK(output->is_unnamed || chmod(output->now, 0640) == 0); break;
    case 4: CHECK(fsync(output->descriptor) == 0); break;
    case 5: CHECK(output->stream || ftruncate(output->descriptor, (off_t)(written + draw(1000))) == 0); break;
    case 6:
        snprintf(other, sizeof other, "%s.other", output->final);
        rename_output(output, other);
        break;
    case 7: CHECK(access(output->final, F_OK) == 0 || errno == ENOENT); break;
    default: meet_once(); /* matched by the other ranks: see `write_at_random` */
    }
}

static void close_output(struct output *output)
{
    unsigned way = draw(5);
    trace("close", way);
    if (output->stream) {
        CHECK(fclose(output->stream) == 0);
        return;
    }
    int null;
    switch (way) {
    case 0: CHECK(syscall(SYS_close, output->descriptor) == 0); break;
    case 1: CHECK(close_range((unsigned)output->descriptor, (unsigned)output->descriptor, 0) == 0); break;
    case 2:
        CHECK((null = open("/dev/null", O_WRONLY)) >= 0);
        CHECK(dup2(null, output->descriptor) == output->descriptor);
        CHECK(close(null) == 0 && close(output->descriptor) == 0);
        break;
    default: CHECK(close(output->descriptor) == 0);
    }
}

static void link_unnamed(struct output *output)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", output->descriptor);
    CHECK(linkat(AT_FDCWD, path, AT_FDCWD, output->final, AT_SYMLINK_FOLLOW) == 0);
    snprintf(output->now, sizeof output->now, "%s", output->final);
    output->is_unnamed = 0;
}

static void patch(const struct output *output)
{
    char header[HEADER_BYTES];
    int descriptor = open(output->final, O_RDWR);
    CHECK(descriptor >= 0 && read(descriptor, header, sizeof header) == sizeof header);
    CHECK(memcmp(header, HEADER, sizeof header) == 0);
    CHECK(pwrite(descriptor, HEADER, HEADER_BYTES, 0) == HEADER_BYTES && close(descriptor) == 0);
}

static void use_complete(const struct output *output, size_t size)
{
    struct stat about;
    unsigned way = draw(7);
    trace("after", way);
    switch (way) {
    case 0: CHECK(stat(output->final, &about) == 0 && about.st_size == (off_t)size); break;
    case 1: CHECK(chmod(output->final, 0640) == 0); break;
    case 2: CHECK(truncate(output->final, (off_t)size) == 0); break;
    case 3: patch(output); break;
    case 4: CHECK(symlink(output->final, in_folder("latest.%d", rank)) == 0 || errno == EEXIST); break;
    case 5: CHECK(link(output->final, in_folder("kept.%d.%ld", rank, (long)size)) == 0 || errno == EEXIST); break;
    default: break;
    }
}

/* The pieces of header and records in a random order. */
static void write_pieces(struct output *output)
{
    size_t size = HEADER_BYTES + bytes, starts[PIECES + 1], order[PIECES];
    char *content = malloc(size);
    CHECK(content != NULL);
    memcpy(content, HEADER, HEADER_BYTES);
    memcpy(content + HEADER_BYTES, records, bytes);
    int is_shuffled = draw(3) == 0;
    for (size_t piece = 0; piece < PIECES; piece++) {
        starts[piece] = size / PIECES * piece;
        order[piece] = piece;
    }
    starts[PIECES] = size;
    for (unsigned piece = PIECES - 1; piece > 0 && is_shuffled; piece--) {
        unsigned other = draw(piece + 1);
        size_t held = order[piece];
        order[piece] = order[other];
        order[other] = held;
    }
    size_t end = 0;
    for (size_t piece = 0; piece < PIECES; piece++) {
        size_t from = starts[order[piece]], to = starts[order[piece] + 1];
        write_piece(output, (off_t)from, content + from, to - from);
        end = to > end ? to : end;
        if (piece + 1 < PIECES)
            disturb(output, end);
    }
    free(content);
}

void write_at_random(uint64_t seed, int epoch)
{
    struct output output;
    /* All ranks draw the same steps, so that they meet in equal numbers. */
    state = seed * 1000 + (uint64_t)epoch;
    open_output(&output, epoch);
    write_pieces(&output);
    if (output.stream)
        CHECK(fflush(output.stream) == 0);
    size_t size = HEADER_BYTES + bytes;
    /* Nothing but a stream's end has flushed what the disturbances have added. */
    CHECK(ftruncate(output.descriptor, (off_t)size) == 0);
    int is_late = draw(2);
    if (output.is_unnamed)
        link_unnamed(&output);
    if (!is_late)
        rename_output(&output, output.final);
    close_output(&output);
    if (is_late)
        rename_output(&output, output.final);
    for (unsigned uses = draw(3); uses > 0; uses--)
        use_complete(&output, size);
}
