/* Streams: how they are buffered, and how long they live. */
#include "habits.h"

#include <stdio_ext.h>

static FILE *open_stream(const char *path, const char *mode)
{
    FILE *stream = fopen(path, mode);
    CHECK(stream != NULL);
    return stream;
}

static void print_in_pieces(FILE *stream, size_t piece)
{
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    for (size_t from = 0; from < count; from += piece) {
        size_t now = count - from < piece ? count - from : piece;
        CHECK(fwrite(records + from, sizeof *records, now, stream) == now);
    }
}

static void print_with_buffer(int epoch, char *buffer, int kind, size_t size, size_t piece)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    CHECK(setvbuf(stream, buffer, kind, size) == 0);
    print_in_pieces(stream, piece);
    CHECK(fclose(stream) == 0);
}

static void plain(int epoch)
{
    write_file(path_of(epoch, ""));
}

static void small_buffer(int epoch)
{
    static char buffer[512];
    print_with_buffer(epoch, buffer, _IOFBF, sizeof buffer, 1);
}

static void big_buffer(int epoch)
{
    static char buffer[4 << 20];
    print_with_buffer(epoch, buffer, _IOFBF, sizeof buffer, 1);
}

static void no_buffer(int epoch)
{
    print_with_buffer(epoch, NULL, _IONBF, 0, 64);
}

static void line_buffer(int epoch)
{
    print_with_buffer(epoch, NULL, _IOLBF, 4096, 7);
}

static void odd_pieces(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    CHECK(fputs(HEADER, stream) >= 0);
    const char *data = (const char *)records;
    for (size_t from = 0, piece = 1; from < bytes; from += piece, piece = piece * 3 % 20011 + 1) {
        if (piece > bytes - from)
            piece = bytes - from;
        CHECK(fwrite(data + from, 1, piece, stream) == piece);
    }
    CHECK(fclose(stream) == 0);
}

static void put_characters(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    CHECK(fprintf(stream, "%s", HEADER) == HEADER_BYTES);
    for (size_t index = 0; index < bytes; index++)
        CHECK(putc_unlocked(((unsigned char *)records)[index], stream) != EOF);
    CHECK(fclose(stream) == 0);
}

static void header_last(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    CHECK(fwrite("XXXXXXXX", HEADER_BYTES, 1, stream) == 1);
    CHECK(fwrite(records, sizeof *records, count, stream) == count);
    CHECK(fseek(stream, 0, SEEK_SET) == 0);
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    CHECK(fclose(stream) == 0);
}

static void print_without_header(const char *path)
{
    FILE *stream = open_stream(path, "w");
    CHECK(fwrite("XXXXXXXX", HEADER_BYTES, 1, stream) == 1);
    CHECK(fwrite(records, sizeof *records, count, stream) == count);
    CHECK(fclose(stream) == 0);
}

static void patch_header(const char *path)
{
    FILE *stream = open_stream(path, "r+");
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    CHECK(fclose(stream) == 0);
}

static void header_reopened(int epoch)
{
    const char *path = path_of(epoch, "");
    print_without_header(path);
    patch_header(path);
}

/* The header is patched when the epoch may have been indexed. */
static void header_later(int epoch)
{
    print_without_header(path_of(epoch, ""));
    meet();
    FILE *stream = fopen(path_of(epoch, ""), "r+");
    if (stream == NULL) {
        CHECK(errno == ENOENT);
        missed = 1;
        return;
    }
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    CHECK(fclose(stream) == 0);
}

static void trailer(int epoch)
{
    const char *path = path_of(epoch, "");
    FILE *stream = open_stream(path, "w");
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    CHECK(fwrite(records, sizeof *records, count - 100, stream) == count - 100);
    CHECK(fclose(stream) == 0);
    stream = open_stream(path, "a");
    CHECK(fwrite(records + count - 100, sizeof *records, 100, stream) == 100);
    CHECK(fclose(stream) == 0);
}

static void reopened_pieces(int epoch)
{
    for (size_t piece = 0; piece < 8; piece++) {
        FILE *stream = open_stream(path_of(epoch, ""), piece ? "a" : "w");
        CHECK(piece || fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
        CHECK(fwrite(records + piece * (count / 8), sizeof *records, count / 8, stream) == count / 8);
        CHECK(fclose(stream) == 0);
        meet_once();
    }
}

static void flushed_at_meetings(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    for (size_t piece = 0; piece < 4; piece++) {
        CHECK(fwrite(records + piece * (count / 4), sizeof *records, count / 4, stream) == count / 4);
        CHECK(fflush(stream) == 0);
        meet_once();
    }
    CHECK(fclose(stream) == 0);
}

static void flushed_all(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    print_in_pieces(stream, 1000);
    CHECK(fflush(NULL) == 0);
    _flushlbf();
    CHECK(fclose(stream) == 0);
}

static void truncated_stream(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w+");
    print_content(stream);
    CHECK(fwrite("garbage", 7, 1, stream) == 1);
    CHECK(fflush(stream) == 0);
    CHECK(ftruncate(fileno(stream), (off_t)(HEADER_BYTES + bytes)) == 0);
    CHECK(fclose(stream) == 0);
}

const struct habit STREAMS[] = {
    {"fwrite", plain},
    {"small_buffer", small_buffer},
    {"big_buffer", big_buffer},
    {"no_buffer", no_buffer},
    {"line_buffer", line_buffer},
    {"odd_pieces", odd_pieces},
    {"put_characters", put_characters},
    {"header_last", header_last},
    {"header_reopened", header_reopened},
    {"header_later", header_later},
    {"trailer", trailer},
    {"reopened_pieces", reopened_pieces},
    {"flushed_at_meetings", flushed_at_meetings},
    {"flushed_all", flushed_all},
    {"truncated_stream", truncated_stream},
    {NULL, NULL},
};

static void freopen_chain(int epoch)
{
    static FILE *stream;
    const char *path = path_of(epoch, "");
    stream = stream ? freopen(path, "w", stream) : fopen(path, "w");
    CHECK(stream != NULL);
    print_content(stream);
    CHECK(epoch < last_epoch || fclose(stream) == 0);
}

static void freopen_first(int epoch)
{
    FILE *stream = freopen(path_of(epoch, ""), "w", open_stream("/dev/null", "w"));
    CHECK(stream != NULL);
    print_content(stream);
    CHECK(fclose(stream) == 0);
}

/* The stream gets a file that is no dump, as a program does that closes its output in this way. */
static void freopen_away(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    print_content(stream);
    stream = freopen(in_folder("log.%d", rank), "a", stream);
    CHECK(stream != NULL);
    CHECK(fprintf(stream, "epoch %d\n", epoch) > 0);
    CHECK(fclose(stream) == 0);
}

static void freopen_mode(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    CHECK(fwrite("XXXXXXXX", HEADER_BYTES, 1, stream) == 1);
    CHECK(fwrite(records, sizeof *records, count, stream) == count);
    stream = freopen(NULL, "r+", stream);
    CHECK(stream != NULL);
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    CHECK(fclose(stream) == 0);
}

static void fdopen_stream(int epoch)
{
    FILE *stream = fdopen(create(path_of(epoch, "")), "w");
    CHECK(stream != NULL);
    print_content(stream);
    CHECK(fclose(stream) == 0);
}

/* The descriptor of the stream is closed without the stream. */
static void closed_below(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    print_content(stream);
    CHECK(fflush(stream) == 0);
    CHECK(close(fileno(stream)) == 0);
    CHECK(fclose(stream) == EOF);
}

static void stream_and_duplicate(int epoch)
{
    FILE *stream = open_stream(path_of(epoch, ""), "w");
    CHECK(fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
    CHECK(fflush(stream) == 0);
    int duplicate = dup(fileno(stream));
    CHECK(duplicate >= 0);
    write_all(duplicate, records, bytes / 2 / 16 * 16);
    CHECK(close(duplicate) == 0);
    CHECK(fseek(stream, 0, SEEK_END) == 0);
    CHECK(fwrite((char *)records + bytes / 2 / 16 * 16, bytes - bytes / 2 / 16 * 16, 1, stream) == 1);
    CHECK(fclose(stream) == 0);
}

static void standard_output(int epoch)
{
    CHECK(fflush(stdout) == 0);
    int kept = dup(STDOUT_FILENO), descriptor = create(path_of(epoch, ""));
    CHECK(kept >= 0 && dup2(descriptor, STDOUT_FILENO) == STDOUT_FILENO);
    CHECK(close(descriptor) == 0);
    print_content(stdout);
    CHECK(fflush(stdout) == 0);
    CHECK(dup2(kept, STDOUT_FILENO) == STDOUT_FILENO && close(kept) == 0);
}

static void close_all_streams(int epoch)
{
    print_content(open_stream(path_of(epoch, ""), "w"));
    CHECK(fcloseall() == 0);
}

static void never_closed(int epoch)
{
    print_content(open_stream(path_of(epoch, ""), "w"));
}

/* The first file is open until the last epoch. */
static void open_for_epochs(int epoch)
{
    static FILE *first;
    static struct record kept;
    if (epoch > 1) {
        write_file(path_of(epoch, ""));
    } else {
        first = open_stream(path_of(epoch, ""), "w");
        CHECK(fwrite(HEADER, HEADER_BYTES, 1, first) == 1);
        CHECK(fwrite(records, sizeof *records, count - 1, first) == count - 1);
        kept = records[count - 1];
    }
    if (epoch == last_epoch) {
        CHECK(fwrite(&kept, sizeof kept, 1, first) == 1);
        CHECK(fclose(first) == 0);
    }
}

/* The file of the next epoch is open before that of this one is closed. */
static void several_open(int epoch)
{
    static FILE *current;
    if (current == NULL)
        current = open_stream(path_of(epoch, ""), "w");
    FILE *next = epoch < last_epoch ? open_stream(path_of(epoch + 1, ""), "w") : NULL;
    print_content(current);
    CHECK(fclose(current) == 0);
    current = next;
}

/* Four files of a rank are open at once, and written by turns. */
static void four_files(int epoch)
{
    FILE *streams[4];
    for (int file = 0; file < 4; file++) {
        streams[file] = open_stream(path_of_rank(epoch, rank * 4 + file, ""), "w");
        CHECK(fwrite(HEADER, HEADER_BYTES, 1, streams[file]) == 1);
    }
    for (size_t index = 0; index < count; index++)
        CHECK(fwrite(records + index, sizeof *records, 1, streams[index % 4]) == 1);
    for (int file = 0; file < 4; file++)
        CHECK(fclose(streams[file]) == 0);
}

const struct habit STREAM_LIVES[] = {
    {"freopen_chain", freopen_chain},
    {"freopen_first", freopen_first},
    {"freopen_away", freopen_away},
    {"freopen_mode", freopen_mode},
    {"fdopen", fdopen_stream},
    {"closed_below", closed_below},
    {"stream_and_duplicate", stream_and_duplicate},
    {"standard_output", standard_output},
    {"fcloseall", close_all_streams},
    {"never_closed", never_closed},
    {"open_for_epochs", open_for_epochs},
    {"several_open", several_open},
    {"four_files", four_files},
    {NULL, NULL},
};
