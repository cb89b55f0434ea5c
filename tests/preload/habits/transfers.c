/* Bytes that reach a file without a write of the program: transfers in the kernel, allocations, and mappings. */
#include "habits.h"

#include <aio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

static void by_sendfile(int epoch)
{
    int input = input_of_records(), output = create(path_of(epoch, ""));
    write_header(output);
    for (off_t at = 0; at < (off_t)bytes;)
        CHECK(sendfile(output, input, &at, bytes - (size_t)at) > 0);
    CHECK(close(input) == 0 && close(output) == 0);
}

static void by_splice(int epoch)
{
    int input = input_of_records(), output = create(path_of(epoch, "")), ends[2];
    CHECK(pipe(ends) == 0);
    write_header(output);
    for (size_t rest = bytes; rest > 0;) {
        ssize_t in = splice(input, NULL, ends[1], NULL, rest < 65536 ? rest : 65536, 0);
        CHECK(in > 0);
        rest -= (size_t)in;
        while (in > 0) {
            ssize_t out = splice(ends[0], NULL, output, NULL, (size_t)in, 0);
            CHECK(out > 0);
            in -= out;
        }
    }
    CHECK(close(input) == 0 && close(output) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void by_copy_file_range(int epoch)
{
    int input = input_of_records(), output = create(path_of(epoch, ""));
    write_header(output);
    off_t from = 0, to = HEADER_BYTES;
    while (from < (off_t)bytes)
        CHECK(copy_file_range(input, &from, output, &to, bytes - (size_t)from, 0) > 0);
    CHECK(close(input) == 0 && close(output) == 0);
}

static void by_fallocate(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    if (fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, (off_t)(HEADER_BYTES + bytes)) != 0)
        CHECK(errno == EOPNOTSUPP);
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
}

static void by_posix_fallocate(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    CHECK(posix_fallocate(descriptor, 0, (off_t)(HEADER_BYTES + bytes + 12345)) == 0);
    write_content(descriptor);
    CHECK(ftruncate(descriptor, (off_t)(HEADER_BYTES + bytes)) == 0);
    CHECK(close(descriptor) == 0);
}

static void punched(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_content(descriptor);
    off_t half = (off_t)(count / 2 * sizeof *records);
    if (fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HEADER_BYTES, half) != 0)
        CHECK(errno == EOPNOTSUPP);
    CHECK(pwrite(descriptor, records, (size_t)half, HEADER_BYTES) == half);
    CHECK(close(descriptor) == 0);
}

static void wait_for_request(struct aiocb *request, size_t size)
{
    const struct aiocb *list[] = {request};
    while (aio_error(request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    CHECK((errno = aio_error(request)) == 0);
    CHECK(aio_return(request) == (ssize_t)size);
}

static void by_aio(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    struct aiocb request = {.aio_fildes = descriptor, .aio_buf = records, .aio_nbytes = bytes, .aio_offset = HEADER_BYTES};
    CHECK(aio_write(&request) == 0);
    CHECK(pwrite(descriptor, HEADER, HEADER_BYTES, 0) == HEADER_BYTES);
    wait_for_request(&request, bytes);
    CHECK(close(descriptor) == 0);
}

static void by_list_of_requests(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    struct aiocb header = {.aio_fildes = descriptor, .aio_buf = HEADER, .aio_nbytes = HEADER_BYTES, .aio_lio_opcode = LIO_WRITE};
    struct aiocb rest = header, *list[] = {&header, &rest};
    rest.aio_buf = records;
    rest.aio_nbytes = bytes;
    rest.aio_offset = HEADER_BYTES;
    CHECK(lio_listio(LIO_WAIT, list, 2, NULL) == 0);
    wait_for_request(&header, HEADER_BYTES);
    wait_for_request(&rest, bytes);
    CHECK(close(descriptor) == 0);
}

const struct habit TRANSFERS[] = {
    {"sendfile", by_sendfile},
    {"splice", by_splice},
    {"copy_file_range", by_copy_file_range},
    {"fallocate", by_fallocate},
    {"posix_fallocate", by_posix_fallocate},
    {"punched", punched},
    {"aio_write", by_aio},
    {"lio_listio", by_list_of_requests},
    {NULL, NULL},
};

static char *map_file(const char *path, size_t size)
{
    int descriptor = create(path);
    CHECK(ftruncate(descriptor, (off_t)size) == 0);
    char *content = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(content != MAP_FAILED);
    CHECK(close(descriptor) == 0);
    return content;
}

static void fill_mapping(char *content)
{
    memcpy(content, HEADER, HEADER_BYTES);
    memcpy(content + HEADER_BYTES, records, bytes);
}

static void mapped(int epoch)
{
    char *content = map_file(path_of(epoch, ""), HEADER_BYTES + bytes);
    fill_mapping(content);
    CHECK(msync(content, HEADER_BYTES + bytes, MS_SYNC) == 0);
    CHECK(munmap(content, HEADER_BYTES + bytes) == 0);
}

/* The mapping is filled past the close and some collectives. */
static void mapped_past_close(int epoch)
{
    char *content = map_file(path_of(epoch, ""), HEADER_BYTES + bytes);
    meet();
    fill_mapping(content);
    CHECK(munmap(content, HEADER_BYTES + bytes) == 0);
}

/* The mapping of the first file is filled in the last epoch, and never unmapped. */
static void mapped_for_epochs(int epoch)
{
    static char *first;
    if (epoch == 1)
        first = map_file(path_of(epoch, ""), HEADER_BYTES + bytes);
    else
        write_file(path_of(epoch, ""));
    if (epoch == last_epoch) {
        fill(1, rank, 0);
        fill_mapping(first);
    }
}

static void mapped_and_resized(int epoch)
{
    const char *path = path_of(epoch, "");
    int descriptor = create(path);
    size_t first = 4096, size = HEADER_BYTES + bytes;
    CHECK(ftruncate(descriptor, (off_t)first) == 0);
    char *content = mmap(NULL, first, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(content != MAP_FAILED);
    CHECK(ftruncate(descriptor, (off_t)size) == 0 && close(descriptor) == 0);
    content = mremap(content, first, size, MREMAP_MAYMOVE);
    CHECK(content != MAP_FAILED);
    meet_once();
    fill_mapping(content);
    CHECK(munmap(content, size) == 0);
}

static void mapped_in_pieces(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    size_t size = HEADER_BYTES + bytes, piece = 65536;
    char *whole = malloc(size);
    CHECK(whole != NULL);
    fill_mapping(whole);
    for (size_t at = 0; at < size; at += piece) {
        size_t now = size - at < piece ? size - at : piece;
        CHECK(ftruncate(descriptor, (off_t)(at + now)) == 0);
        char *content = mmap(NULL, now, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, (off_t)at);
        CHECK(content != MAP_FAILED);
        memcpy(content, whole + at, now);
        CHECK(munmap(content, now) == 0);
    }
    CHECK(close(descriptor) == 0);
    free(whole);
}

/* The file is written, and mapped for reading only. */
static void mapped_to_read(int epoch)
{
    int descriptor = create(path_of(epoch, ""));
    write_content(descriptor);
    const char *content = mmap(NULL, HEADER_BYTES + bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    CHECK(content != MAP_FAILED && close(descriptor) == 0);
    CHECK(memcmp(content + HEADER_BYTES, records, bytes) == 0);
    CHECK(munmap((void *)content, HEADER_BYTES + bytes) == 0);
}

const struct habit MAPPINGS[] = {
    {"mmap", mapped},
    {"mmap_past_close", mapped_past_close},
    {"mmap_for_epochs", mapped_for_epochs},
    {"mremap", mapped_and_resized},
    {"mmap_pieces", mapped_in_pieces},
    {"mmap_to_read", mapped_to_read},
    {NULL, NULL},
};
