/* Ranks that share a file, write files of others, or write nothing. */
#include "habits.h"

#ifdef WITH_MPI
#include <mpi.h>
#endif

static const char *shared_path(int epoch)
{
    CHECK(path_of(epoch, "") != NULL);
    return in_folder("E.%d/rows", epoch);
}

static off_t own_offset(void)
{
    return (off_t)(HEADER_BYTES + (size_t)rank * bytes);
}

/* The ranks write one after the other. */
static void at_offsets_by_turns(int epoch)
{
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) {
            FILE *stream = fopen(shared_path(epoch), rank ? "r+b" : "wb");
            CHECK(stream != NULL);
            CHECK(rank || fwrite(HEADER, HEADER_BYTES, 1, stream) == 1);
            CHECK(fseeko(stream, own_offset(), SEEK_SET) == 0);
            CHECK(fwrite(records, sizeof *records, count, stream) == count);
            CHECK(fclose(stream) == 0);
        }
        meet_once();
    }
}

static void write_part(int epoch, int part)
{
    int descriptor = open(shared_path(epoch), O_WRONLY | O_CREAT, 0644);
    CHECK(descriptor >= 0);
    CHECK(part || pwrite(descriptor, HEADER, HEADER_BYTES, 0) == HEADER_BYTES);
    CHECK(pwrite(descriptor, records, bytes, (off_t)(HEADER_BYTES + (size_t)part * bytes)) == (ssize_t)bytes);
    CHECK(close(descriptor) == 0);
}

/* The ranks write at once. */
static void at_offsets_at_once(int epoch)
{
    write_part(epoch, rank);
}

/* One rank more writes in each epoch. */
static void at_offsets_by_more(int epoch)
{
    if (rank < epoch)
        write_part(epoch, rank);
}

/* The ranks of each node write a file. */
static void at_offsets_by_node(int epoch)
{
    int part = 0;
#ifdef WITH_MPI
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &part);
    MPI_Comm_free(&node);
#endif
    write_part(epoch, part);
}

static void appended_by_turns(int epoch)
{
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) {
            int descriptor = open(shared_path(epoch), O_WRONLY | O_CREAT | O_APPEND, 0644);
            CHECK(descriptor >= 0);
            if (rank == 0)
                write_header(descriptor);
            write_records(descriptor);
            CHECK(close(descriptor) == 0);
        }
        meet_once();
    }
}

/* Rank 0 writes one file for all. */
static void one_file_by_root(int epoch)
{
    if (rank != 0)
        return;
    int descriptor = create(shared_path(epoch));
    write_header(descriptor);
    for (int of_rank = 0; of_rank < ranks; of_rank++) {
        fill(epoch, of_rank, 0);
        write_records(descriptor);
    }
    CHECK(close(descriptor) == 0);
}

static void all_files_by_root(int epoch)
{
    for (int of_rank = 0; of_rank < ranks && rank == 0; of_rank++) {
        fill(epoch, of_rank, 0);
        write_file(path_of_rank(epoch, of_rank, ""));
    }
}

static void other_ranks_file(int epoch)
{
    int other = (rank + epoch) % ranks;
    fill(epoch, other, 0);
    write_file(path_of_rank(epoch, other, ""));
}

static void some_ranks(int epoch)
{
    if (rank % 2 == 0)
        write_file(path_of(epoch, ""));
}

static void another_rank_by_turns(int epoch)
{
    if (rank == epoch % ranks)
        write_file(path_of(epoch, ""));
}

/* A rank renames the files of all. */
static void renamed_by_root(int epoch)
{
    write_file(path_of(epoch, ".tmp"));
    meet_once();
    for (int of_rank = 0; of_rank < ranks && rank == 0; of_rank++)
        CHECK(rename(path_of_rank(epoch, of_rank, ".tmp"), path_of_rank(epoch, of_rank, "")) == 0);
    meet_once();
}

/* A rank creates the files of all, each writes its own. */
static void created_by_root(int epoch)
{
    for (int of_rank = 0; of_rank < ranks && rank == 0; of_rank++)
        CHECK(close(create(path_of_rank(epoch, of_rank, ""))) == 0);
    meet_once();
    int descriptor = open(path_of(epoch, ""), O_WRONLY);
    CHECK(descriptor >= 0);
    write_content(descriptor);
    CHECK(close(descriptor) == 0);
}

/* Another rank completes the file that this one has begun. */
static void completed_by_other(int epoch)
{
    FILE *stream = fopen(path_of(epoch, ""), "w");
    CHECK(stream != NULL && fwrite(HEADER, HEADER_BYTES, 1, stream) == 1 && fclose(stream) == 0);
    meet_once();
    int other = (rank + 1) % ranks;
    fill(epoch, other, 0);
    stream = fopen(path_of_rank(epoch, other, ""), "a");
    CHECK(stream != NULL && fwrite(records, sizeof *records, count, stream) == count && fclose(stream) == 0);
}

#ifdef WITH_MPI
static void through_mpi_io(int epoch)
{
    MPI_File file;
    int mode = MPI_MODE_CREATE | MPI_MODE_WRONLY;
    const char *path = shared_path(epoch);
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    if (rank == 0)
        CHECK(MPI_File_write_at(file, 0, HEADER, HEADER_BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_write_at_all(file, own_offset(), records, (int)bytes, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
}

static void own_file_through_mpi_io(int epoch)
{
    MPI_File file;
    int mode = MPI_MODE_CREATE | MPI_MODE_WRONLY;
    CHECK(MPI_File_open(MPI_COMM_SELF, path_of(epoch, ""), mode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    CHECK(MPI_File_write(file, HEADER, HEADER_BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_write(file, records, (int)bytes, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
}
#endif

const struct habit SHARES[] = {
    {"shared_by_turns", at_offsets_by_turns},
    {"shared_at_once", at_offsets_at_once},
    {"shared_by_more", at_offsets_by_more},
    {"shared_by_node", at_offsets_by_node},
    {"shared_appended", appended_by_turns},
    {"shared_by_root", one_file_by_root},
    {"root_writes_all", all_files_by_root},
    {"other_ranks_file", other_ranks_file},
    {"some_ranks", some_ranks},
    {"ranks_by_turns", another_rank_by_turns},
    {"root_renames", renamed_by_root},
    {"root_creates", created_by_root},
    {"completed_by_other", completed_by_other},
#ifdef WITH_MPI
    {"mpi_io", through_mpi_io},
    {"mpi_io_own", own_file_through_mpi_io},
#endif
    {NULL, NULL},
};
