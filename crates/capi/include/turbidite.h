/*
 * Turbidite: in-situ indexing for scientific simulations.
 *
 * A program opens a dataset, and for each timestep begins an epoch, appends its records and ends the epoch. When
 * turbidite_end_epoch returns, the timestep is durable, sorted and can be queried.
 *
 *     turbidite_column columns[] = {{"energy", TURBIDITE_F32, 0, "mc^2"}, {"id", TURBIDITE_U64, 0, NULL}};
 *     turbidite_dataset *dataset;
 *     turbidite_open("particles.tbd", columns, 2, "energy", NULL, NULL, &dataset);
 *     turbidite_begin_epoch(dataset, step);
 *     turbidite_view views[] = {{&p[0].energy, sizeof p[0]}, {&p[0].id, sizeof p[0]}};
 *     turbidite_append(dataset, views, 2, count);
 *     turbidite_end_epoch(dataset, NULL);
 *     turbidite_close(dataset);
 *
 * With several ranks, hand turbidite_open a transport (turbidite_mpi.h makes one of a communicator). Then open,
 * begin_epoch, end_epoch and truncate_after are collective: every rank calls them, in the same order. append,
 * renegotiate and progress are not, and never wait for another rank beyond the patience of the options.
 *
 * Several datasets may be open at once, each with a transport of its own; they share memory, and one thread that sorts
 * and writes.
 *
 * Every function answers a status; on all but TURBIDITE_OK and TURBIDITE_SKIPPED, turbidite_last_error() says in words
 * what happened and what to do. No function exits, aborts or throws. A handle may be used by one thread at a time.
 */
#ifndef TURBIDITE_H
#define TURBIDITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBIDITE_ABI_VERSION 1

/* What a call answers. The first four are the exit codes of the command line as well. */
typedef int32_t turbidite_status;
#define TURBIDITE_OK 0      /* done */
#define TURBIDITE_FAILED 1  /* storage, a lock, a missing epoch, another rank's failure */
#define TURBIDITE_USAGE 2   /* the call is wrong: arguments, types, state */
#define TURBIDITE_DAMAGE 3  /* stored data is damaged */
#define TURBIDITE_SKIPPED 4 /* begin_epoch: the epoch exists and was to be skipped; append nothing, do not end it */

/* The library's version, as "0.1.0". */
const char *turbidite_version(void);

/* The value of TURBIDITE_ABI_VERSION the library was built with. */
uint32_t turbidite_abi_version(void);

/* What the last call of this thread that failed had to say; valid until the next call of this thread. Never NULL. */
const char *turbidite_last_error(void);

/* ---- Schema ---- */

/* A column's type. Values lie in memory in the machine's own order. */
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
#define TURBIDITE_BYTES 11 /* a fixed number of bytes: `width` */

/* One column. */
typedef struct turbidite_column {
    const char *name; /* letters, digits, underscores */
    int32_t type;     /* TURBIDITE_F32 ... */
    uint32_t width;   /* bytes of a value of TURBIDITE_BYTES; 0 otherwise */
    const char *unit; /* free text, or NULL */
} turbidite_column;

/* One column's values: the first one's address, and the bytes from one to the next. */
typedef struct turbidite_view {
    const void *data;
    size_t stride;
} turbidite_view;

/* ---- Options ---- */

#define TURBIDITE_IF_EXISTS_ERROR 0
#define TURBIDITE_IF_EXISTS_REPLACE 1
#define TURBIDITE_IF_EXISTS_SKIP 2

/* How a dataset is written. Call turbidite_options_init first, then change what is to be different. */
typedef struct turbidite_options {
    uint32_t struct_size;    /* sizeof(turbidite_options), set by turbidite_options_init */
    int32_t if_exists;       /* the action of begin_epoch if the epoch exists: TURBIDITE_IF_EXISTS_... */
    int32_t break_lock;      /* not 0: take over a lock whose holder's state is unknown on this host */
    uint32_t receivers;      /* ranks that store records, spread evenly; 0 for all */
    uint32_t pivots;         /* size of the summary a rank sends when a partition table is made */
    uint32_t patience_ms;    /* timeout of an append for a rank's credit; then its records stay on this rank */
    uint32_t stall_s;        /* a collective call fails after this long without progress; 0: never */
    uint32_t reserved;       /* 0 */
    uint64_t renegotiate;    /* records per rank between two partition tables; 0: adaptive; UINT64_MAX: on request */
    uint64_t memtable_bytes; /* size of a memtable; a receiver has two */
    const char *source;      /* free text for dataset.json, or NULL */
} turbidite_options;

/* Fills in the defaults. */
void turbidite_options_init(turbidite_options *options);

/* ---- Transport: how ranks reach each other ---- */

#define TURBIDITE_CONTROL 0 /* small messages of the protocol; they never wait behind data */
#define TURBIDITE_DATA 1    /* batches of records, to the rank that stores them */
#define TURBIDITE_OUTWARD 2 /* batches for other nodes, to a rank of the sender's own node that passes them on */
#define TURBIDITE_ACROSS 3  /* batches from a rank that passes them on to one on another node */

#define TURBIDITE_SENT 0      /* send: done with the message, the caller may reuse its memory */
#define TURBIDITE_PENDING 1   /* send: under way; its memory is the transport's until `completed` names it */
#define TURBIDITE_NO_CREDIT 2 /* send: too much is on its way; never for TURBIDITE_CONTROL */

/*
 * A rank's connection to the others, filled in by a library such as libturbidite_mpi.
 *
 * Nothing blocks. Messages from one rank to another on one channel arrive in the order they were sent, each exactly
 * once. Each channel for batches has credit of its own, for at least one message at every rank: one that is full or not
 * polled holds up none of the others, or representatives that wait for each other may never end. TURBIDITE_OUTWARD and
 * TURBIDITE_ACROSS are used only when `nodes` names several nodes. A message that cannot be sent or received ever again
 * makes the functions answer a negative number; `describe` says why. All functions are called on the thread that calls
 * turbidite_..., never on one of the library's own.
 */
typedef struct turbidite_transport {
    uint32_t struct_size; /* sizeof(turbidite_transport) */
    uint32_t abi_version; /* TURBIDITE_ABI_VERSION */
    void *context;        /* handed to every function */
    uint32_t rank;
    uint32_t ranks;
    /* The node of every rank, numbered from 0 in the order of their lowest ranks; NULL when all share one. Has to
     * stay. */
    const uint32_t *nodes;
    /* Offers `bytes` bytes for rank `to`; `token` names the message to `completed`. `to` is never the rank itself. */
    int32_t (*send)(void *context, uint32_t to, int32_t channel, const void *message, size_t bytes, void *token);
    /* The token of a message that was TURBIDITE_PENDING and has left, or NULL. */
    void *(*completed)(void *context);
    /* 1 and a message that has arrived on `channel`, 0 when there is none. The message is lent until `release`. */
    int32_t (*poll)(void *context, int32_t channel, const void **message, size_t *bytes);
    /* Gives back a message that `poll` lent. */
    void (*release)(void *context, const void *message);
    /* Why a function answered a negative number. Valid until the next call. */
    const char *(*describe)(void *context);
    /* The ranks have lost each other, and this one waits for none of them any more: neither send nor poll is called
     * after this, and closing the transport must not wait for another rank. */
    void (*abandon)(void *context);
} turbidite_transport;

/* ---- Writing ---- */

typedef struct turbidite_dataset turbidite_dataset;

/* Opens the dataset at `path`, a folder that every rank sees, or creates it. Collective. `options` may be NULL for the
 * defaults, `transport` for a program of one rank; the transport has to outlive the handle. */
turbidite_status turbidite_open(const char *path, const turbidite_column *columns, size_t column_count, const char *key,
                                const turbidite_options *options, const turbidite_transport *transport,
                                turbidite_dataset **dataset);

/* Begins an epoch, such as the number of the timestep. Collective. TURBIDITE_SKIPPED see above. */
turbidite_status turbidite_begin_epoch(turbidite_dataset *dataset, uint64_t epoch);

/* Appends `rows` records: one view per column, in the order of the schema. The memory may be reused on return. */
turbidite_status turbidite_append(turbidite_dataset *dataset, const turbidite_view *columns, size_t column_count, size_t rows);

/* Appends records that lie packed, column after column without gaps, as the schema has them. */
turbidite_status turbidite_append_rows(turbidite_dataset *dataset, const void *rows, size_t count);

/* Asks for a new partition table: for codes that know that their data has changed, as after a refinement. */
turbidite_status turbidite_renegotiate(turbidite_dataset *dataset);

/* Moves messages, for programs that compute for long while others append. Never waits. */
turbidite_status turbidite_progress(turbidite_dataset *dataset);

/* What an epoch was. The same on every rank, but for the last six, which are this rank's own. */
typedef struct turbidite_figures {
    uint32_t struct_size;     /* sizeof(turbidite_figures), to be set by the caller */
    uint32_t ranks;
    uint64_t rows;            /* records of all ranks */
    uint64_t strays;          /* of these, outside of their receiver's partition */
    uint64_t spills;          /* of these, kept on their own rank since nobody took them in time */
    uint64_t nan_keys;        /* of these, with a key that is no number */
    uint64_t renegotiations;  /* partition tables made */
    uint64_t messages;        /* messages sent */
    uint64_t bytes_written;
    double load_imbalance;    /* standard deviation of the receivers' loads over their mean */
    double wall_s;            /* from begin_epoch to the commit */
    uint32_t recipients;      /* other ranks that this one sent records to, straight or to be passed on */
    uint32_t senders;         /* other ranks that this one took records from */
    uint64_t forwarded;       /* other ranks' records that this one passed on */
    uint64_t open_batch_bytes; /* most memory of batches that were being filled */
    uint64_t batch_bytes;     /* most memory of all batches on their way out */
} turbidite_figures;

/* Ends the epoch and commits it: durable and visible to readers on return. Collective; when any rank could not store
 * its records every rank gets the same status and error, the epoch is not there, and the next one may begin. `figures`
 * may be NULL. */
turbidite_status turbidite_end_epoch(turbidite_dataset *dataset, turbidite_figures *figures);

/* The same in two parts. After `start` no more records may be appended; sorting and writing go on in the background
 * while the program computes. `wait` returns when the epoch is committed. Both are collective. */
turbidite_status turbidite_end_epoch_start(turbidite_dataset *dataset);
turbidite_status turbidite_end_epoch_wait(turbidite_dataset *dataset, turbidite_figures *figures);

/* Removes all epochs after `epoch`, for a restart from a checkpoint. Collective, outside of an epoch. */
turbidite_status turbidite_truncate_after(turbidite_dataset *dataset, uint64_t epoch);

/* Closes the dataset and frees the handle, whatever the status. NULL is allowed. An epoch that is open is given up. */
turbidite_status turbidite_close(turbidite_dataset *dataset);

/* ---- Reading ---- */

struct ArrowArrayStream; /* https://arrow.apache.org/docs/format/CStreamInterface.html */

typedef struct turbidite_reader turbidite_reader;

/* Opens the dataset at `path` for queries. No transport: any process may read at any time. */
turbidite_status turbidite_reader_open(const char *path, turbidite_reader **reader);

/* What is asked. Zeroed memory with struct_size set asks for every record. */
typedef struct turbidite_request {
    uint32_t struct_size;       /* sizeof(turbidite_request) */
    int32_t ordered;            /* not 0: in key order */
    const char *where;          /* "energy > 5 AND id < 100", or NULL */
    const char *const *columns; /* names, or NULL for all */
    size_t column_count;
    const char *epochs;         /* "500" or "500..1500" (both included); NULL for all */
    uint64_t limit;             /* most records; 0 for no limit */
} turbidite_request;

/* Answers a query as a stream of Arrow record batches, to be released by the caller. The stream outlives the reader. */
turbidite_status turbidite_query(turbidite_reader *reader, const turbidite_request *request, struct ArrowArrayStream *stream);

/* Frees the reader. NULL is allowed. */
void turbidite_reader_close(turbidite_reader *reader);

#ifdef __cplusplus
}
#endif

#endif /* TURBIDITE_H */
