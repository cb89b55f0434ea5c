/*
 * A program that misuses the library: misuse CASE DATASET writes three epochs and makes the mistake CASE. It goes on
 * after errors, as a program does that ignores statuses, and prints each. With -DWITH_MPI, all ranks of MPI_COMM_WORLD
 * take part, and RANK makes the mistake.
 */
#define TURBIDITE_UNCHECKED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_MPI
#include <turbidite_mpi.h>
#else
#include <turbidite.h>
#endif

enum { COUNT = 1000, HALF = COUNT / 2, RANK = 1, WRONG_EPOCH = 2 };

struct particle {
    float energy;
    char name[6];
    uint64_t id;
};

static struct particle p[COUNT];
static const turbidite_column COLUMNS[] = {
    {"energy", TURBIDITE_F32, 0, NULL}, {"id", TURBIDITE_U64, 0, NULL}, {"name", TURBIDITE_BYTES, 6, NULL}};
static const char *mistake, *path;
static turbidite_dataset *dataset;
static turbidite_transport *transport;
static int makes_it = 1;

/* Whether this is the mistake, and this rank makes it. */
static int is(const char *name) { return makes_it && strcmp(mistake, name) == 0; }

/* Whether all ranks make this mistake. */
static int all(const char *name) { return strcmp(mistake, name) == 0; }

static void tell(const char *call, turbidite_status status) {
    if (status == TURBIDITE_OK || status == TURBIDITE_SKIPPED) return;
    printf("%d %.*s: %s\n", (int)status, (int)strcspn(call, "("), call, turbidite_last_error());
#ifdef WITH_MPI
    if (all("aborts")) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
#endif
}
#define TRY(call) tell(#call, call)

static void open_dataset(const char *at, turbidite_dataset **opened) {
    turbidite_column columns[3];
    turbidite_options options;
    const char *key = is("key") ? "enrgy" : "energy";
    memcpy(columns, COLUMNS, sizeof columns);
    turbidite_options_init(&options);
    if (all("breaks")) options.break_lock = 1;
    if (all("replaces") || all("turns")) options.if_exists = TURBIDITE_IF_EXISTS_REPLACE;
    if (all("skipped")) options.if_exists = TURBIDITE_IF_EXISTS_SKIP;
    if (all("stalls")) options.stall_s = 1;
    if (all("full")) options.memtable_bytes = 1 << 20;
    if (is("mode")) options.if_exists = 7;
    if (is("options")) memset(&options, 0, sizeof options);
    if (is("levels")) options.levels = 3;
    if (is("type")) columns[1].type = 99;
    if (is("duplicate")) columns[1].name = "energy";
    if (is("schema")) columns[0].type = TURBIDITE_F64;
    if (is("nameless")) columns[1].name = NULL;
    if (is("pathless")) at = NULL;
    TRY(turbidite_open(at, columns, 3, key, &options, transport, opened));
}

/* Makes the views wrong. */
static void spoil(turbidite_view *views, size_t *count, size_t *rows) {
    static double doubles[HALF];
    static long long signed_ids[HALF];
    static int shorts[HALF];
    static char names[HALF][5];
    if (is("doubles") || is("again")) views[0] = turbidite_values(doubles, sizeof doubles[0]);
    if (is("signed")) views[1] = turbidite_values(signed_ids, sizeof signed_ids[0]);
    if (is("short")) views[1] = turbidite_values(shorts, sizeof shorts[0]);
    if (is("swapped")) views[0] = turbidite_values(&p[0].id, sizeof p[0]);
    if (is("untyped")) views[0] = (turbidite_view){&p[0].energy, sizeof p[0], 0, 0};
    if (is("decayed")) views[2] = turbidite_values(p[0].name, sizeof p[0]);
    if (is("wide")) views[2] = turbidite_values(&names[0], sizeof names[0]);
    if (is("nowhere")) views[1].data = NULL;
    if (is("narrow")) views[1].stride = 4;
    if (is("backwards")) views[1].stride = (size_t)-8;
    if (is("endless")) *rows = SIZE_MAX;
    if (is("fewer")) *count = 2;
    if (is("more")) *count = 4;
}

static void append(size_t first, int is_wrong) {
    turbidite_view views[] = {turbidite_values(&p[first].energy, sizeof p[0]), turbidite_values(&p[first].id, sizeof p[0]),
                              turbidite_values(&p[first].name, sizeof p[0]), turbidite_values(&p[first].id, sizeof p[0])};
    size_t count = 3, rows = HALF;
    if (is_wrong && is("packed")) {
        TRY(turbidite_append_rows(dataset, p + first, sizeof p[0], HALF));
        return;
    }
    if (is_wrong) spoil(views, &count, &rows);
    if (is("constant")) views[0] = turbidite_values(&p[0].energy, 0);
    TRY(turbidite_append(dataset, views, count, rows));
}

static void end_epoch(int is_wrong) {
    if (is_wrong && is("unstarted")) TRY(turbidite_end_epoch_wait(dataset, NULL));
    if (is_wrong && (is("late") || is("ending"))) {
        TRY(turbidite_end_epoch_start(dataset));
        if (is("late")) append(HALF, 0);
        if (is("ending")) TRY(turbidite_end_epoch(dataset, NULL));
        TRY(turbidite_end_epoch_wait(dataset, NULL));
    } else {
        TRY(turbidite_end_epoch(dataset, NULL));
    }
    if (is_wrong && is("ended")) TRY(turbidite_end_epoch(dataset, NULL));
    if (is_wrong && is("after")) append(0, 0);
}

static void write_epoch(uint64_t epoch) {
    int is_wrong = epoch == WRONG_EPOCH;
    TRY(turbidite_begin_epoch(dataset, is_wrong && is("differs") ? 77 : epoch));
    if (is_wrong && is("inside")) TRY(turbidite_begin_epoch(dataset, 3));
    append(0, 0);
    if (is_wrong && is("again")) append(0, 1);
    if (is_wrong && is("truncates")) TRY(turbidite_truncate_after(dataset, 0));
    /* Half as many records as those that are replaced. */
    if (!all("replaces")) append(HALF, is_wrong);
    /* More than the disk has room for. */
    for (int i = 0; is_wrong && all("full") && i < 1500; i++) append(0, 0);
    end_epoch(is_wrong);
}

#ifdef WITH_MPI
static const char *beside(const char *suffix) {
    static char other[4096];
    snprintf(other, sizeof other, "%s-%s", path, suffix);
    return other;
}

static turbidite_transport *connect(void) {
    turbidite_transport *opened;
    if (turbidite_mpi_open(MPI_COMM_WORLD, &opened) != TURBIDITE_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    return opened;
}

/* Two indexes, or an index and the records, on one transport. */
static void share_among_indexes(void) {
    static const char *const INDEXES[] = {"id"};
    const turbidite_transport *both[] = {transport, transport};
    turbidite_dataset *indexed;
    TRY(turbidite_open_indexed(beside("indexed"), COLUMNS, 3, "energy", INDEXES, 1, NULL, both, &indexed));
}

/* The transport of the index connects fewer ranks. */
static void mix_ranks(void) {
    static const char *const INDEXES[] = {"id"};
    turbidite_transport *alone;
    turbidite_dataset *indexed;
    if (turbidite_mpi_open(MPI_COMM_SELF, &alone) != TURBIDITE_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    const turbidite_transport *both[] = {transport, alone};
    TRY(turbidite_open_indexed(beside("indexed"), COLUMNS, 3, "energy", INDEXES, 1, NULL, both, &indexed));
    TRY(turbidite_mpi_close(alone));
}

/* Each rank writes the dataset alone, one after the other. */
static void take_turns(int rank, int ranks) {
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) {
            open_dataset(path, &dataset);
            for (uint64_t epoch = 1; epoch <= 3; epoch++) write_epoch(epoch);
            TRY(turbidite_close(dataset));
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Each rank prints to a file: mpiexec drops lines of ranks that abort. */
static void print_to_file(int rank) {
    char name[4096];
    snprintf(name, sizeof name, "%s-said.%d", path, rank);
    if (freopen(name, "w", stderr) == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
}

static void open_with_ranks(int *argc, char ***argv) {
    int rank, ranks;
    if (all("early")) TRY(turbidite_mpi_open(MPI_COMM_WORLD, &transport));
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    makes_it = rank == RANK;
    if (all("early")) return;
    if (all("aborts")) print_to_file(rank);
    if (all("turns")) {
        take_turns(rank, ranks);
        return;
    }
    turbidite_transport *opened = connect();
    if (!all("alone")) transport = opened;
    /* Rank 0 has the lock when the others come. */
    if (all("alone") && rank > 0) MPI_Barrier(MPI_COMM_WORLD);
    open_dataset(path, &dataset);
    if (all("alone") && rank == 0) MPI_Barrier(MPI_COMM_WORLD);
    if (all("alone")) MPI_Barrier(MPI_COMM_WORLD);
    if (all("alone")) transport = opened;
    if (all("shared")) {
        turbidite_dataset *second;
        TRY(turbidite_open(beside("other"), COLUMNS, 3, "energy", NULL, transport, &second));
    }
}

/* Whether the program is over: ranks that have lost each other cannot go on, and MPI is not used after its end. */
static int is_over(void) {
    if (all("early") || all("turns")) {
        MPI_Finalize();
        return 1;
    }
    if (all("stalls")) {
        if (!makes_it) {
            TRY(turbidite_begin_epoch(dataset, 1));
            TRY(turbidite_begin_epoch(dataset, 1));
        }
        TRY(turbidite_close(dataset));
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return 1;
    }
    if (all("finalized")) {
        write_epoch(1);
        MPI_Finalize();
        TRY(turbidite_mpi_close(transport));
        TRY(turbidite_close(dataset));
        return 1;
    }
    if (!all("indexes") && !all("mixed")) return 0;
    TRY(turbidite_close(dataset));
    if (all("indexes"))
        share_among_indexes();
    else
        mix_ranks();
    TRY(turbidite_mpi_close(transport));
    MPI_Finalize();
    return 1;
}
#else
/* A dataset that cannot be opened is told of once. Afterwards, another one that was never opened is told of, too. */
static void forget_to_open(void) {
    turbidite_dataset *other = NULL;
    open_dataset("/dev/null/ds", &dataset);
    write_epoch(1);
    TRY(turbidite_close(dataset));
    TRY(turbidite_begin_epoch(other, 1));
}

static void hold(void) {
    open_dataset(path, &dataset);
    printf("open\n");
    fflush(stdout);
    getchar();
    TRY(turbidite_close(dataset));
}

/* Makes the mistakes of opening. Returns whether the program is over. */
static int is_over(void) {
    if (is("silent")) turbidite_print_errors(0);
    if (is("unopened")) {
        forget_to_open();
        return 1;
    }
    if (is("holds")) {
        hold();
        return 1;
    }
    open_dataset(path, &dataset);
    if (is("reopened")) {
        turbidite_dataset *second;
        open_dataset(path, &second);
    }
    return 0;
}
#endif

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    mistake = argv[1], path = argv[2];
    for (uint64_t i = 0; i < COUNT; i++) {
        p[i] = (struct particle){.energy = (float)i, .id = i};
        memcpy(p[i].name, "abcdef", 6);
    }
#ifdef WITH_MPI
    open_with_ranks(&argc, &argv);
#endif
    if (is_over()) {
        printf("done\n");
        return 0;
    }
    if (is("before")) append(0, 0);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) write_epoch(epoch);
    if (is("open")) TRY(turbidite_begin_epoch(dataset, 9));
    TRY(turbidite_close(dataset));
#ifdef WITH_MPI
    TRY(turbidite_mpi_close(transport));
    MPI_Finalize();
#endif
    printf("done\n");
    return 0;
}
