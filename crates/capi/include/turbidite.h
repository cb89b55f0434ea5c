/*
 * Turbidite: in-situ indexing for scientific simulations.
 *
 * A program opens a dataset, and for each timestep begins an epoch, appends its records and ends the epoch. When
 * turbidite_end_epoch returns, the timestep is durable, sorted and can be queried.
 *
 *     turbidite_column columns[] = {{"energy", TURBIDITE_F32, 0, "mc^2"}, {"id", TURBIDITE_U64, 0, NULL}};
 *     turbidite_dataset *dataset;
 *     if (turbidite_open("particles.tbd", columns, 2, "energy", NULL, NULL, &dataset) != TURBIDITE_OK)
 *         exit(1);
 *     turbidite_view views[] = {turbidite_values(&p[0].energy, sizeof p[0]), turbidite_values(&p[0].id, sizeof p[0])};
 *     if (turbidite_begin_epoch(dataset, step) != TURBIDITE_OK || turbidite_append(dataset, views, 2, count) != TURBIDITE_OK
 *         || turbidite_end_epoch(dataset, NULL) != TURBIDITE_OK || turbidite_close(dataset) != TURBIDITE_OK)
 *         exit(1);
 *
 * C++ programs include turbidite.hpp, which has turbidite::values in place of the macro.
 *
 * With several ranks, pass a transport to turbidite_open (turbidite_mpi.h creates one from a communicator). Then open,
 * begin_epoch, end_epoch and truncate_after are collective: every rank calls them, in the same order. append,
 * renegotiate and progress are not collective, and never wait for another rank longer than patience_ms.
 *
 * Several datasets may be open at the same time, each with its own transport. They share memory, and one thread that
 * sorts and writes.
 *
 * Most functions return a status. For every status except TURBIDITE_OK and TURBIDITE_SKIPPED, turbidite_last_error()
 * returns a message that states what failed and what to do. Functions that write also print the message on standard
 * error, see turbidite_print_errors. No function exits, aborts or throws. Only one thread at a time may use a handle.
 */
#ifndef TURBIDITE_H
#define TURBIDITE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBIDITE_ABI_VERSION 2

/* Compilers warn of calls whose status is ignored, unless TURBIDITE_UNCHECKED is defined. */
#if defined(__GNUC__) && !defined(TURBIDITE_UNCHECKED)
#define TURBIDITE_CHECKED __attribute__((warn_unused_result))
#else
#define TURBIDITE_CHECKED
#endif

/* The functions with which a program begins have the version in their names. A program that was compiled with another
 * version's header is refused by them, with a message that says so. */
#define turbidite_open turbidite_open_abi2
#define turbidite_open_indexed turbidite_open_indexed_abi2
#define turbidite_reader_open turbidite_reader_open_abi2

/* The status of a call. The first four values are also the exit codes of the command line. */
typedef int32_t turbidite_status;
#define TURBIDITE_OK 0      /* success */
#define TURBIDITE_FAILED 1  /* a failure of storage, a lock, a missing epoch, a failure of another rank */
#define TURBIDITE_USAGE 2   /* an invalid call: wrong arguments, types or state */
#define TURBIDITE_CORRUPTION 3  /* stored data is corrupt */
#define TURBIDITE_SKIPPED 4 /* begin_epoch: the epoch exists and is skipped; append no records, do not end it */

/* Returns the library's version, such as "0.1.0". */
const char *turbidite_version(void);

/* Returns the value of TURBIDITE_ABI_VERSION that the library was built with. */
uint32_t turbidite_abi_version(void);

/* Returns the error message of this thread's last failed call, also of turbidite_mpi.h. Valid until this thread's next
 * call. Never NULL. */
const char *turbidite_last_error(void);

/* Turns off (0) or on (the default) that failed calls of turbidite_open to turbidite_close, and those of
 * turbidite_mpi.h, print their message on standard error. Of an error that all ranks return, rank 0 prints it, before
 * another rank returns it. A collective call that has waited for a minute without progress prints that, too. */
void turbidite_print_errors(int32_t print);

/* For bindings and libraries between the program and this one: records the message of a failed call that did not reach
 * this library, prints it if `print` is not 0 and printing is on, and returns `status`. */
turbidite_status turbidite_report_error(turbidite_status status, const char *message, int32_t print);

/* ---- Schema ---- */

/* The type of a column. Values have the machine's byte order. */
#define TURBIDITE_F32 1
#define TURBIDITE_F64 2
#define TURBIDITE_I32 3
#define TURBIDITE_I64 4
#define TURBIDITE_U32 5
#define TURBIDITE_U64 6
#define TURBIDITE_I8 7
#define TURBIDITE_I16 8
#define TURBIDITE_U8 9
#define TURBIDITE_U16 10
#define TURBIDITE_BYTES 11 /* `width` bytes per value */

/* One column. */
typedef struct turbidite_column {
    const char *name; /* UTF-8, not empty, without a dot; not "epoch"; unique, whatever the case of ASCII letters */
    int32_t type;     /* TURBIDITE_F32 ... */
    uint32_t width;   /* bytes per value of TURBIDITE_BYTES; otherwise 0 */
    const char *unit; /* free text, or NULL */
} turbidite_column;

/* The values of one column: the address of the first value, the distance between two values in bytes, and their type,
 * which must be that of the column. A distance of 0 repeats one value. */
typedef struct turbidite_view {
    const void *data;
    size_t stride;
    int32_t type;   /* TURBIDITE_F32 ... */
    uint32_t width; /* bytes per value of TURBIDITE_BYTES; otherwise 0 */
} turbidite_view;

/* Returns a view of values whose type is that of the column, whatever `data` points to: for programs that describe
 * their columns by a table. */
static inline turbidite_view turbidite_column_values(const turbidite_column *column, const void *data, size_t stride)
{
    turbidite_view view;
    view.data = data;
    view.stride = stride;
    view.type = column->type;
    view.width = column->width;
    return view;
}

/* Returns a view whose type is that of the pointer:
 *
 *     turbidite_values(&p[0].energy, sizeof p[0])   a member of an array of structs
 *     turbidite_values(ux, sizeof ux[0])            an array
 *     turbidite_values(&weight, 0)                  one value for all records
 *     turbidite_values(&p[0].name, sizeof p[0])     TURBIDITE_BYTES, if `name` is an array of characters
 *
 * Needs C11. The compiler refuses pointers to other types. */
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define turbidite_values(pointer, stride)                                                                     \
    ((turbidite_view){(pointer), (stride), TURBIDITE_TYPE_OF(*(pointer)),                                     \
                      TURBIDITE_TYPE_OF(*(pointer)) == TURBIDITE_BYTES ? (uint32_t)sizeof *(pointer) : 0})
/* An array is converted to a pointer here. */
#define TURBIDITE_TYPE_OF(value)                                                                              \
    _Generic((value),                                                                                         \
        float: TURBIDITE_F32,                                                                                 \
        double: TURBIDITE_F64,                                                                                \
        signed char: TURBIDITE_I8,                                                                            \
        unsigned char: TURBIDITE_U8,                                                                          \
        char: CHAR_MIN < 0 ? TURBIDITE_I8 : TURBIDITE_U8,                                                     \
        _Bool: TURBIDITE_U8,                                                                                  \
        short: TURBIDITE_I16,                                                                                 \
        unsigned short: TURBIDITE_U16,                                                                        \
        int: TURBIDITE_I32,                                                                                   \
        unsigned int: TURBIDITE_U32,                                                                          \
        long: sizeof(long) == 8 ? TURBIDITE_I64 : TURBIDITE_I32,                                              \
        unsigned long: sizeof(long) == 8 ? TURBIDITE_U64 : TURBIDITE_U32,                                     \
        long long: TURBIDITE_I64,                                                                             \
        unsigned long long: TURBIDITE_U64,                                                                    \
        char *: TURBIDITE_BYTES,                                                                              \
        const char *: TURBIDITE_BYTES,                                                                        \
        signed char *: TURBIDITE_BYTES,                                                                       \
        const signed char *: TURBIDITE_BYTES,                                                                 \
        unsigned char *: TURBIDITE_BYTES,                                                                     \
        const unsigned char *: TURBIDITE_BYTES)
#elif defined(__cplusplus)
/* C++ has turbidite::values of turbidite.hpp. */
#define turbidite_values(pointer, stride) turbidite_values_needs_C11_and_Cplusplus_needs_turbidite_hpp
#else
/* Needs C11: compile with -std=c11, or use turbidite_column_values. */
#define turbidite_values(pointer, stride) turbidite_values_needs_C11
#endif

/* ---- Options ---- */

#define TURBIDITE_IF_EXISTS_ERROR 0
#define TURBIDITE_IF_EXISTS_REPLACE 1
#define TURBIDITE_IF_EXISTS_SKIP 2

/* Options for writing a dataset. Call turbidite_options_init first, then set the options that differ from the
 * defaults. */
typedef struct turbidite_options {
    uint32_t struct_size;    /* sizeof(turbidite_options), set by turbidite_options_init */
    int32_t if_exists;       /* the action of begin_epoch if the epoch exists: TURBIDITE_IF_EXISTS_... */
    int32_t break_lock;      /* not 0: take over a lock whose holder's state is unknown on this host */
    uint32_t receivers;      /* ranks that store each epoch, spread evenly; 0: by the volume of the last epoch */
    uint32_t pivots;         /* maximum number of pivots of its key distribution that a rank sends for a table */
    uint32_t patience_ms;    /* timeout of an append for a receiver's credit; its records then stay on this rank */
    uint32_t stall_s;        /* a collective call fails after this long without progress; 0: never */
    uint32_t levels;         /* levels of detail above level 0 of a new dataset, with a key by space, 1 to 6; 0: none */
    uint64_t renegotiate;    /* records per rank between two partition tables; 0: adaptive; UINT64_MAX: on request */
    uint64_t memtable_bytes; /* size of a memtable; a receiver has two */
    const char *source;      /* free text for dataset.json, or NULL */
    const char *period;      /* periods of the coordinates of a new dataset with a key by space, in their order, and
                              * nothing for one that is not periodic: "128,,64". Boxes wrap there. NULL for none. An
                              * existing dataset keeps its periods, and refuses others */
    const char *level_weight; /* the column of numbers to which these levels are in proportion: rows with large values
                               * move up more often. NULL for even levels, and for those that the dataset has */
} turbidite_options;

/* Sets all options to their defaults. The struct grows at its end, so its size tells which version the program knows.
 */
#define turbidite_options_init(options) turbidite_options_init_sized((options), sizeof(turbidite_options))
void turbidite_options_init_sized(turbidite_options *options, size_t bytes);

/* ---- Transport: how ranks reach each other ---- */

#define TURBIDITE_CONTROL 0 /* small messages of the protocol, which never wait for batches */
#define TURBIDITE_DATA 1    /* batches of records for the rank that stores them */
#define TURBIDITE_OUTWARD 2 /* batches for other nodes, to a rank of the sender's node that forwards them */
#define TURBIDITE_ACROSS 3  /* batches from a rank that forwards them to a rank on another node */

#define TURBIDITE_SENT 0      /* send: the message is complete, and the caller may reuse its memory */
#define TURBIDITE_PENDING 1   /* send: in flight; the transport uses the memory until `completed` returns the token */
#define TURBIDITE_NO_CREDIT 2 /* send: refused, since too many messages are in flight; never for TURBIDITE_CONTROL */

/*
 * A rank's connection to the other ranks, provided by a library such as libturbidite_mpi.
 *
 * No function blocks. Messages from one rank to another on one channel arrive exactly once and in the order in which
 * they were sent. Each batch channel has its own credit, for at least one message to every rank. A channel that is full
 * or not polled must not block the other channels: representatives that wait for each other would otherwise deadlock.
 * TURBIDITE_OUTWARD and TURBIDITE_ACROSS are used only if `nodes` contains several nodes. If a message can never be
 * sent or received, the functions return a negative number from then on, and `describe` returns the reason. All
 * functions are called on the thread that calls turbidite_..., never on one of the library's own threads.
 */
typedef struct turbidite_transport {
    uint32_t struct_size; /* sizeof(turbidite_transport) */
    uint32_t abi_version; /* TURBIDITE_ABI_VERSION */
    void *context;        /* passed to every function */
    uint32_t rank;
    uint32_t ranks;
    /* The node of every rank. Nodes are numbered from 0 in the order of their lowest ranks. NULL if all ranks share one
     * node. Must outlive the transport. */
    const uint32_t *nodes;
    /* Sends `bytes` bytes to rank `to`, which is never the rank itself. `completed` later returns `token`. */
    int32_t (*send)(void *context, uint32_t to, int32_t channel, const void *message, size_t bytes, void *token);
    /* Returns the token of a TURBIDITE_PENDING message whose send is complete, or NULL. */
    void *(*completed)(void *context);
    /* Returns 1 and a message that has arrived on `channel`, or 0 if there is none. The message is lent until
     * `release`. */
    int32_t (*poll)(void *context, int32_t channel, const void **message, size_t *bytes);
    /* Ends the loan of a message from `poll`. */
    void (*release)(void *context, const void *message);
    /* Returns the reason why a function returned a negative number. Valid until the next call. */
    const char *(*describe)(void *context);
    /* Abandons the connection: ranks can no longer reach each other. Afterwards neither send nor poll is called, and
     * closing the transport must not wait for other ranks. */
    void (*abandon)(void *context);
} turbidite_transport;

/* ---- Writing ---- */

typedef struct turbidite_dataset turbidite_dataset;

/* Opens or creates the dataset at `path`, a folder that every rank can access. Collective. `key` is the column that
 * records are sorted by, "hash:COLUMN", the ids that single records are looked up by, or "space:X,Y,Z", two or three
 * coordinates by which records are read in boxes. `options` may be NULL for the defaults. `transport` may be NULL for a
 * program of one rank. The transport must outlive the handle, and serves one open dataset. */
TURBIDITE_CHECKED turbidite_status turbidite_open(const char *path, const turbidite_column *columns,
                                                  size_t column_count, const char *key,
                                                  const turbidite_options *options,
                                                  const turbidite_transport *transport, turbidite_dataset **dataset);

/* Opens a dataset like turbidite_open, and indexes its records while they are written. `indexes` are `index_count`
 * columns: "COLUMN" finds ranges and single values, "hash:COLUMN" single values, and each ",with=COLUMN" after them
 * adds a column that the index carries, so that queries for these columns alone read no records. "bitmap:A,B,..."
 * answers conditions on several columns. An index is committed with each epoch, before its records; if it cannot be
 * stored, the epoch fails. `transports` are 1 + `index_count` transports between the same ranks: one for the records,
 * and one for each index, since two of them on one transport would receive each other's messages. Bitmap indexes send
 * nothing, so theirs may be NULL. NULL for a program of one rank. All must outlive the handle. */
TURBIDITE_CHECKED turbidite_status turbidite_open_indexed(const char *path, const turbidite_column *columns,
                                                          size_t column_count, const char *key,
                                                          const char *const *indexes, size_t index_count,
                                                          const turbidite_options *options,
                                                          const turbidite_transport *const *transports,
                                                          turbidite_dataset **dataset);

/* Begins an epoch. `epoch` is, for example, the number of the timestep. Collective. May return TURBIDITE_SKIPPED, see
 * above. If records were appended before, outside an epoch, this epoch fails at its end, as does an epoch that has not
 * ended when the next one is begun. Epochs above 2^63 - 1 are refused. */
TURBIDITE_CHECKED turbidite_status turbidite_begin_epoch(turbidite_dataset *dataset, uint64_t epoch);

/* Appends `rows` records, given as one view per column in the order of the schema. The memory may be reused on return.
 * If records cannot be appended, since a view does not fit its column, the epoch fails on all ranks at its end. */
TURBIDITE_CHECKED turbidite_status turbidite_append(turbidite_dataset *dataset, const turbidite_view *columns,
                                                    size_t column_count, size_t rows);

/* Appends packed records of `row_bytes` bytes, in which the columns follow each other in the order of the schema,
 * without gaps. */
TURBIDITE_CHECKED turbidite_status turbidite_append_rows(turbidite_dataset *dataset, const void *rows, size_t row_bytes,
                                                         size_t count);

/* For bindings: fails as turbidite_append does, for a reason that the binding has found. */
turbidite_status turbidite_refuse_append(turbidite_dataset *dataset, const char *why);

/* Sets a number that describes the open epoch, such as its physical time: "time". A time in the `unit` "s", "ms", "us",
 * "ns", "ps", "fs" or "as" is kept in seconds, one in another unit, or without one (NULL), as it is. Not collective:
 * what rank 0 sets is kept, and other ranks may call this as well. A value that is not finite is refused; the epoch does
 * not fail. */
TURBIDITE_CHECKED turbidite_status turbidite_epoch_attribute(turbidite_dataset *dataset, const char *name, double value,
                                                             const char *unit);

/* Requests a new partition table. For programs that know that their key distribution has changed, for example after a
 * mesh refinement. */
TURBIDITE_CHECKED turbidite_status turbidite_renegotiate(turbidite_dataset *dataset);

/* Sends and receives messages, for programs that compute for a long time while other ranks append. Never waits. */
TURBIDITE_CHECKED turbidite_status turbidite_progress(turbidite_dataset *dataset);

/* Metrics of an epoch. They are the same on every rank, except for the last six, which describe this rank. */
typedef struct turbidite_epoch_metrics {
    uint32_t struct_size;     /* sizeof(turbidite_epoch_metrics), set by the caller */
    uint32_t ranks;
    uint64_t rows;            /* records of all ranks */
    uint64_t strays;          /* of these, stored outside their receiver's partition */
    uint64_t spills;          /* of these, stored on their own rank since an append timed out */
    uint64_t nan_keys;        /* of these, with NaN as key */
    uint64_t renegotiations;  /* new partition tables */
    uint64_t messages;        /* messages sent */
    uint64_t bytes_written;
    double load_imbalance;    /* standard deviation of the receivers' loads over their mean */
    double wall_s;            /* from begin_epoch to the commit */
    uint32_t recipients;      /* other ranks that this rank sent records to, directly or for forwarding */
    uint32_t senders;         /* other ranks that this rank received records from */
    uint64_t forwarded;       /* other ranks' records that this rank forwarded */
    uint64_t open_batch_bytes; /* maximum memory of batches that were being filled */
    uint64_t batch_bytes;     /* maximum memory of all outgoing batches */
} turbidite_epoch_metrics;

/* Ends the epoch and commits it. On return, the epoch is durable and visible to readers. Collective. If any rank could
 * not store its records, every rank returns the same status and error, the epoch does not exist, and the next epoch may
 * begin. `metrics` may be NULL. */
TURBIDITE_CHECKED turbidite_status turbidite_end_epoch(turbidite_dataset *dataset, turbidite_epoch_metrics *metrics);

/* End the epoch in two steps. After `start`, no more records may be appended: the next epoch would lack them, and
 * fails. Sorting and writing continue in the background while the program computes. `wait` returns when the epoch is
 * committed. Both are collective. */
TURBIDITE_CHECKED turbidite_status turbidite_end_epoch_start(turbidite_dataset *dataset);
TURBIDITE_CHECKED turbidite_status turbidite_end_epoch_wait(turbidite_dataset *dataset, turbidite_epoch_metrics *metrics);

/* Removes all epochs after `epoch`, for a restart from a checkpoint. Collective, outside of an epoch. */
TURBIDITE_CHECKED turbidite_status turbidite_truncate_after(turbidite_dataset *dataset, uint64_t epoch);

/* Closes the dataset and frees the handle, even if the status is an error. NULL is allowed. An open epoch is
 * abandoned. */
TURBIDITE_CHECKED turbidite_status turbidite_close(turbidite_dataset *dataset);

/* ---- Reading ---- */

struct ArrowArrayStream; /* https://arrow.apache.org/docs/format/CStreamInterface.html */

typedef struct turbidite_reader turbidite_reader;

/* Opens the dataset at `path` for queries. Any process may read at any time, without a transport. */
TURBIDITE_CHECKED turbidite_status turbidite_reader_open(const char *path, turbidite_reader **reader);

/* Returns the periods of the dataset's coordinates in their order, modulo which boxes are compared: 0 for a coordinate
 * that is not periodic, and without a key by space. */
TURBIDITE_CHECKED turbidite_status turbidite_reader_periods(const turbidite_reader *reader, double periods[3]);

/* A query. Zeroed memory with struct_size set selects every record.
 *
 * A box is a half-open range for each of its columns: "x=0:10,y=-5:5,z=:3". A bound may be left out; "z=:" accepts
 * every number but NaN. `period` lists the period of each range in the order of the box: a number, "none" for a column
 * that is not periodic, or nothing for the period that the dataset states, if any: "128,,none". Values and their range
 * are compared modulo the period. With the period 128, "x=120:138" contains the values from 120 to 128 and those from 0
 * to 10.
 *
 * Shares divide a query among the ranks of a program, for example for a restart on any number of ranks. Each rank asks
 * for its own share, and no messages are sent:
 *
 *     turbidite_request request = {sizeof request, .epochs = "4000", .share = rank, .shares = ranks};
 *
 * Together the shares contain every record once. Before the predicate and the box, they differ by at most one record. A
 * share is contiguous in the order of epochs, parts and row groups; if it is `ordered`, it is in key order within each
 * epoch. All ranks must see the same epochs, so state `epochs` while another program writes. If an epoch is replaced
 * after the call, the stream fails. A query with a limit has no shares. */
typedef struct turbidite_request {
    uint32_t struct_size;       /* sizeof(turbidite_request) */
    int32_t ordered;            /* not 0: in key order */
    const char *where;          /* "energy > 5 AND id < 100", or NULL */
    const char *const *columns; /* names, or "name = expression"; NULL for all */
    size_t column_count;
    const char *epochs;         /* "500", "500..1500" (both included), "0..1500..100", "last"; NULL for all */
    uint64_t limit;             /* maximum number of records; 0 for no limit */
    const char *box;            /* "x=0:10,y=-5:5", or NULL */
    const char *period;         /* "128," for this box; NULL for the periods that the dataset states */
    uint64_t share;             /* 0 to shares - 1 */
    uint64_t shares;            /* number of shares; 0 for all records in one stream */
    const char *order_by;       /* columns or expressions by which the records of all epochs are sorted, instead of
                                 * `ordered`: "energy desc, id"; NULL for none. Such a query has no shares */
} turbidite_request;

/* Runs a query and returns its rows as a stream of Arrow record batches, which the caller releases. The stream may
 * outlive the reader. */
TURBIDITE_CHECKED turbidite_status turbidite_query(turbidite_reader *reader, const turbidite_request *request,
                                                   struct ArrowArrayStream *stream);

/* A cursor: the rows of a query of one epoch, step by step, from the coarsest level of detail to the finest. Each row
 * is returned once, and each page read once. The dataset must have levels of detail, or a spatial index that is then
 * read. If it has an overview, the coarsest level is read from it. Ten steps, each of which adds a tenth:
 *
 *     turbidite_request request = {sizeof request, .epochs = "4000", .box = "0:10,-5:5,:"};
 *     turbidite_cursor *cursor;
 *     turbidite_cursor_open(reader, &request, NULL, &cursor);
 *     for (int tenth = 1; tenth <= 10; tenth++) {
 *         struct ArrowArrayStream stream;
 *         turbidite_cursor_advance(cursor, 0, tenth / 10.0, &stream);
 *         // read and release the stream
 *     }
 *     turbidite_cursor_close(cursor);
 */
typedef struct turbidite_cursor turbidite_cursor;

/* A batch of a cursor: rows of one page, or of a few that follow each other. */
typedef struct turbidite_batch {
    uint32_t struct_size; /* sizeof(turbidite_batch), set by the caller */
    uint32_t level;       /* rows of this level and above are a sample of one row in 8^level */
    uint64_t rows;
    uint32_t receiver;    /* the receiver that has stored the rows, and the number of its run: all levels of a run */
    uint32_t run;         /* share it. Both are UINT32_MAX for rows of the overview, which are of several runs */
    uint32_t coordinates; /* number of bounds; 0 for rows with a NaN coordinate */
    uint32_t reserved;
    double lower[3];      /* bounds of each coordinate, both included */
    double upper[3];
} turbidite_batch;

/* Opens a cursor. The request has one epoch, no order, limit and shares. If `near` is not NULL, it has a number for
 * each coordinate of the dataset (without levels of detail: of the spatial index whose coordinates the request limits
 * most), and the pages of each level come by their distance from this point, modulo the periods of the dataset. The
 * cursor may outlive the reader. If the epoch is replaced, the next step that opens a file fails. */
TURBIDITE_CHECKED turbidite_status turbidite_cursor_open(turbidite_reader *reader, const turbidite_request *request,
                                                         const double *near, turbidite_cursor **cursor);

/* Takes a step, and returns its rows as a stream, which the caller reads and releases before the next step. If `rows`
 * is not 0, the step has as many rows, and at most about a page more. Otherwise, it goes on until the share `quality`
 * of the matching rows, from 0 to 1, has been returned by all steps together; everything that is left at 1. The stream
 * of a step without rows is empty. Rows that were not read from a stream are those of the next one. The stream may
 * outlive the cursor. */
TURBIDITE_CHECKED turbidite_status turbidite_cursor_advance(turbidite_cursor *cursor, uint64_t rows, double quality,
                                                            struct ArrowArrayStream *stream);

/* Describes the batch that the stream of the step has returned last. */
TURBIDITE_CHECKED turbidite_status turbidite_cursor_batch(const turbidite_cursor *cursor, turbidite_batch *batch);

/* Writes the weights of the rows of all steps to `weights`, in the order in which the streams returned them: the number
 * of rows that each one stands for after the last step. `count` is the number of these rows. Counts and sums with these
 * weights are unbiased estimates for any place and predicate, except for rows with a NaN coordinate, which are all of
 * level 0 and have the weight 1. Without a predicate and a box, the weights add up to the rows of the epoch that have
 * coordinates, unless levels are in proportion to a column. Weights are NaN in the middle of the highest level that is
 * read from a point outwards. The cursor keeps 8 bytes for each coordinate of the returned rows above level 0, and
 * reads their coordinates even if the request does not return them. */
TURBIDITE_CHECKED turbidite_status turbidite_cursor_weights(const turbidite_cursor *cursor, double *weights,
                                                            uint64_t count);

/* Returns the ratio of the highest to the lowest share of rows that have been returned in regions: 1 at the end of a
 * level, 8 in the middle of one (more if levels are in proportion to a column), for which the weights compensate;
 * infinity in the middle of the highest level, where regions have no rows. 0 before the first step. */
double turbidite_cursor_density_ratio(const turbidite_cursor *cursor);

/* Returns the number of rows that each row of all steps stands for, and their mean in the middle of a level. 0 if no
 * estimate is possible: before the first step, and in the middle of a level that is read from a point outwards. Also 0,
 * up to the end, if levels are in proportion to a column: see turbidite_cursor_weights. */
double turbidite_cursor_stands_for(const turbidite_cursor *cursor);

/* Returns the lowest level of detail of which all rows have been read, as have been those of all coarser levels. -1
 * before the coarsest level is complete. */
int32_t turbidite_cursor_complete_level(const turbidite_cursor *cursor);

/* Writes the number of rows that each row of the batch which the stream has returned last stands for, among the rows of
 * a level and above, to `numbers`. `count` is the number of rows of the batch. The numbers are 8^level, or follow from
 * the column to which levels are in proportion; they are 0 if the batch is of a lower level. With the level that is
 * complete, sums of the numbers over all batches are unbiased counts, and sums of their products with a column unbiased
 * sums, for any place and predicate. */
TURBIDITE_CHECKED turbidite_status turbidite_cursor_stand_for(const turbidite_cursor *cursor, uint32_t level,
                                                              double *numbers, uint64_t count);

/* Returns the maximum number of rows that further steps return. 0 at the end. */
uint64_t turbidite_cursor_rows_most(const turbidite_cursor *cursor);

/* Frees the cursor. NULL is allowed. */
void turbidite_cursor_close(turbidite_cursor *cursor);

/* A request for the rows of particles with known ids. Zeroed memory with struct_size and the ids set selects all of
 * their rows, in all epochs.
 *
 * Ids are given like records to turbidite_append, as one view per column of the id. A program has its ids in arrays or
 * structs, and thus neither converts nor formats them. Values have the types of the dataset's columns. Repeated ids
 * count once. A request for particles 17 and 42:
 *
 *     uint64_t ids[] = {17, 42};
 *     turbidite_view view = turbidite_values(ids, sizeof ids[0]);
 *     turbidite_get_request request = {sizeof request, .id = "id", .ids = &view, .view_count = 1, .id_count = 2};
 */
typedef struct turbidite_get_request {
    uint32_t struct_size;       /* sizeof(turbidite_get_request) */
    uint32_t threads;           /* 0: the number of cores */
    const char *id;             /* the column of the ids, or several: "cpu,id"; NULL: the key, unless it is a float */
    const turbidite_view *ids;  /* views of the columns of the id, in their order */
    size_t view_count;
    size_t id_count;            /* number of values of each view; at most 1,000,000 different ids */
    const char *const *columns; /* names of columns that follow the id and the epoch; NULL for all */
    size_t column_count;
    const char *epochs;         /* "500", "500..1500" (both included), "0..1500..100", "last"; NULL for all */
    uint64_t limit;             /* maximum number of rows; 0 for no limit */
    const char *use;            /* the index that finds the rows, or "scan" for none; NULL for whatever reads least */
    const char *scratch;        /* folder of an unnamed file for rows beyond 64 MiB; NULL: $TMPDIR, or /tmp */
} turbidite_get_request;

/* A request for the trajectories of particles: those of a list, as in turbidite_get_request, or those that match a
 * predicate and lie within a box at an epoch. Either `ids` is not NULL, or `of` or `box` or both. */
typedef struct turbidite_track_request {
    uint32_t struct_size;       /* sizeof(turbidite_track_request) */
    uint32_t threads;
    const char *id;
    const turbidite_view *ids;
    size_t view_count;
    size_t id_count;
    const char *const *columns;
    size_t column_count;
    const char *epochs;         /* epochs of the trajectories, which need not contain `at` */
    uint64_t limit;
    const char *use;
    const char *scratch;
    const char *of;             /* "energy > 100" */
    uint64_t at;                /* the epoch at which `of` and `box` select particles */
    const char *box;            /* as in turbidite_request */
    const char *period;
} turbidite_track_request;

/* Metrics of a request for particles. They do not depend on its limit. */
typedef struct turbidite_track_metrics {
    uint32_t struct_size;    /* sizeof(turbidite_track_metrics), set by the caller */
    uint32_t epochs;         /* epochs of the request */
    uint64_t ids;            /* different ids */
    uint64_t rows;           /* rows of the particles in these epochs */
    uint64_t incomplete_ids; /* particles without a row in at least one of the epochs */
    uint64_t absent_ids;     /* of these, particles without a row in any of the epochs */
    uint64_t missing;        /* pairs of a particle and an epoch that have no row */
    uint64_t duplicates;     /* rows beyond the first of the same particle and epoch */
    uint64_t bytes_read;
} turbidite_track_metrics;

/* Finds the rows of particles by id, and returns them as a stream of Arrow record batches, sorted by id and epoch: the
 * columns of the id, `epoch` (64-bit unsigned), and the other columns. All rows are read before the call returns; the
 * stream may outlive the reader, and the caller releases it. An id that has no row is no error: `metrics`, which may be
 * NULL, count such ids. An epoch that does not exist is one. */
TURBIDITE_CHECKED turbidite_status turbidite_get(turbidite_reader *reader, const turbidite_get_request *request,
                                                 struct ArrowArrayStream *stream, turbidite_track_metrics *metrics);

/* Follows particles through epochs. Rows, stream and metrics are as for turbidite_get. */
TURBIDITE_CHECKED turbidite_status turbidite_tracks(turbidite_reader *reader, const turbidite_track_request *request,
                                                    struct ArrowArrayStream *stream, turbidite_track_metrics *metrics);

/* The bins of one axis of a histogram. Zeroed memory with struct_size and `column` set requests 64 bins of equal width
 * over the finite values of the column. */
typedef struct turbidite_bins {
    uint32_t struct_size; /* sizeof(turbidite_bins) */
    int32_t is_log;       /* not 0: edges have equal ratios, for positive values */
    const char *column;
    uint64_t count;       /* maximum number of bins; 0: 64. A column of integers has at most one for each integer */
    double low;           /* ends of the bins, both included; 0 and 0: those of the column's finite values */
    double high;
    double *edges;        /* filled with the edges, if it is not NULL: room for count + 1 */
    double *errors;       /* filled with the standard error of each bin, if it is not NULL: room for count. Counts are
                           * then estimates from the rows of `level` and above, one in 8^level; no others are read */
    uint32_t level;       /* a level of detail of the dataset; 0 without `errors` */
    uint32_t reserved;
    uint64_t budget_bytes; /* of x: exact counts that would read more of the columns are refused; 0: 10^9 */
} turbidite_bins;

/* Metrics of a histogram. Counts are pairs: at least, at most. They are equal in exact histograms. */
typedef struct turbidite_histogram_metrics {
    uint32_t struct_size;  /* sizeof(turbidite_histogram_metrics), set by the caller */
    uint32_t epochs;       /* epochs of the request */
    uint64_t rows[2];      /* rows that satisfy the predicate and lie in the box */
    uint64_t nan[2];       /* rows in which a column of the histogram is NaN */
    uint64_t infinite[2];  /* rows in which a column is infinite, and none is NaN */
    uint64_t outside[2];   /* rows with finite values that are in no bin */
    uint64_t bins[2];      /* number of bins of x and of y; 0 for y if there is none */
    uint64_t bytes_read;
} turbidite_histogram_metrics;

/* Counts the rows of a request in bins of the column of `x`, or of the columns of `x` and `y`; `y` may be NULL.
 * Columns, order and limit of the request are ignored, and it has no shares.
 *
 * `least` has room for the bins that are requested, x.count times y.count: all bins of y for the first bin of x come
 * first. A bin contains its lower edge, and the last one its upper edge, too. If `most` is NULL, counts are exact, up to
 * the budget of x, and bitmap indexes tell which rows need not be read. If `most` has room for as many numbers, no record is read: `least`
 * and `most` are bounds from bitmap indexes and statistics, and equal where edges of bins are edges of an index.
 * `metrics` may be NULL if there are as many bins as requested, and state their number otherwise: a column of integers
 * may have fewer, and one without a finite value has none.
 *
 * With `errors` in x, `least` is filled with estimates from a level of detail, and `y` and `most` are NULL. The true
 * number lies within 1.96 errors of an estimate with a probability of 0.95 or more. Estimates leave out rows with a NaN
 * coordinate, which are in no sample above level 0; the pairs of `metrics` are bounds that include them.
 *
 * How many rows have which velocities in step 4000:
 *
 *     uint64_t rows[64 * 64];
 *     turbidite_request request = {sizeof request, .epochs = "4000", .where = "energy > 10"};
 *     turbidite_bins x = {sizeof x, .column = "ux", .low = -3.2, .high = 3.2};
 *     turbidite_bins y = {sizeof y, .column = "uy", .low = -3.2, .high = 3.2};
 *     turbidite_histogram(reader, &request, &x, &y, rows, NULL, NULL);
 */
TURBIDITE_CHECKED turbidite_status turbidite_histogram(turbidite_reader *reader, const turbidite_request *request,
                                                       const turbidite_bins *x, const turbidite_bins *y,
                                                       uint64_t *least, uint64_t *most,
                                                       turbidite_histogram_metrics *metrics);

/* Returns how many times queries of the reader found Bloom filters or an index corrupt. Their rows are complete, but
 * took more reads: run "turbidite verify". 0 for NULL. */
uint64_t turbidite_reader_ignored_corruption(const turbidite_reader *reader);

/* Returns the bytes of pages that the reader's requests have read. Those of a query are counted while its stream
 * returns batches. 0 for NULL. */
uint64_t turbidite_reader_bytes_read(const turbidite_reader *reader);

/* Frees the reader. NULL is allowed. */
void turbidite_reader_close(turbidite_reader *reader);

#ifdef __cplusplus
}
#endif

#endif /* TURBIDITE_H */
