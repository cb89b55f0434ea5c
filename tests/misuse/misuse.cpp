// misuse CASE DATASET: misuse.c in C++. Failed calls are exceptions, which the program catches and prints.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#ifdef WITH_MPI
#include <turbidite_mpi.h>
#endif
#include <turbidite.hpp>

namespace {

constexpr std::size_t COUNT = 1000, HALF = COUNT / 2;
constexpr int RANK = 1;
constexpr std::uint64_t WRONG_EPOCH = 2;

struct particle {
    float energy;
    std::array<char, 6> name;
    std::uint64_t id;
};

std::vector<particle> p(COUNT);
const std::array<turbidite_column, 3> COLUMNS{
    {{"energy", TURBIDITE_F32, 0, nullptr}, {"id", TURBIDITE_U64, 0, nullptr}, {"name", TURBIDITE_BYTES, 6, nullptr}}};
std::string mistake, path;
turbidite_dataset *dataset;
turbidite_transport *transport;
bool makes_it = true;

// Whether this is the mistake, and this rank makes it.
bool is(const char *name) { return makes_it && mistake == name; }

// Whether all ranks make this mistake.
bool all(const char *name) { return mistake == name; }

template <typename Call> void attempt(const char *name, Call call)
{
    try {
        turbidite::check(call());
    } catch (const turbidite::error &error) {
        const int length = static_cast<int>(std::strcspn(name, "("));
        std::printf("%d %.*s: %s\n", static_cast<int>(error.status()), length, name, error.what());
    }
}
#define TRY(call) attempt(#call, [&] { return call; })

void open_dataset(const char *at, turbidite_dataset **opened)
{
    auto columns = COLUMNS;
    turbidite_options options;
    turbidite_options_init(&options);
    if (all("breaks")) options.break_lock = 1;
    if (all("replaces")) options.if_exists = TURBIDITE_IF_EXISTS_REPLACE;
    if (all("skipped")) options.if_exists = TURBIDITE_IF_EXISTS_SKIP;
    if (all("full")) options.memtable_bytes = 1 << 20;
    if (is("mode")) options.if_exists = 7;
    if (is("options")) options = turbidite_options();
    if (is("levels")) options.levels = 3;
    if (is("type")) columns[1].type = 99;
    if (is("duplicate")) columns[1].name = "energy";
    if (is("schema")) columns[0].type = TURBIDITE_F64;
    if (is("nameless")) columns[1].name = nullptr;
    if (is("pathless")) at = nullptr;
    const char *key = is("key") ? "enrgy" : "energy";
    TRY(turbidite_open(at, columns.data(), columns.size(), key, &options, transport, opened));
}

// Makes the views wrong.
void spoil(std::vector<turbidite_view> &views, std::size_t &rows)
{
    static const std::vector<double> doubles(HALF);
    static const std::vector<long long> signed_ids(HALF);
    static const std::vector<int> shorts(HALF);
    static const std::vector<std::array<char, 5>> names(HALF);
    if (is("doubles") || is("again")) views[0] = turbidite::values(doubles);
    if (is("signed")) views[1] = turbidite::values(signed_ids);
    if (is("short")) views[1] = turbidite::values(shorts);
    if (is("swapped")) views[0] = turbidite::values(p.data(), &particle::id);
    if (is("untyped")) views[0] = turbidite_view{&p[0].energy, sizeof p[0], 0, 0};
    if (is("decayed")) views[2] = turbidite::values(p[0].name.data(), sizeof p[0]);
    if (is("wide")) views[2] = turbidite::values(names);
    if (is("nowhere")) views[1] = turbidite::values(static_cast<const particle *>(nullptr), &particle::id);
    if (is("narrow")) views[1] = turbidite::values(&p[0].id, 4);
    if (is("backwards")) views[1] = turbidite::values(&p[0].id, static_cast<std::size_t>(-8));
    if (is("endless")) rows = SIZE_MAX;
    if (is("fewer")) views.pop_back();
    if (is("more")) views.push_back(views[1]);
}

void append(std::size_t first, bool is_wrong)
{
    const particle *data = p.data() + first;
    std::size_t rows = HALF;
    if (is_wrong && is("packed")) {
        TRY(turbidite_append_rows(dataset, data, sizeof *data, rows));
        return;
    }
    std::vector<turbidite_view> views{turbidite::values(data, &particle::energy), turbidite::values(data, &particle::id),
                                      turbidite::values(data, &particle::name)};
    if (is_wrong) spoil(views, rows);
    if (is("constant")) views[0] = turbidite::values(&p[0].energy, 0);
    TRY(turbidite_append(dataset, views.data(), views.size(), rows));
}

void end_epoch(bool is_wrong)
{
    if (is_wrong && is("unstarted")) TRY(turbidite_end_epoch_wait(dataset, nullptr));
    if (is_wrong && (is("late") || is("ending"))) {
        TRY(turbidite_end_epoch_start(dataset));
        if (is("late")) append(HALF, false);
        if (is("ending")) TRY(turbidite_end_epoch(dataset, nullptr));
        TRY(turbidite_end_epoch_wait(dataset, nullptr));
    } else {
        TRY(turbidite_end_epoch(dataset, nullptr));
    }
    if (is_wrong && is("ended")) TRY(turbidite_end_epoch(dataset, nullptr));
    if (is_wrong && is("after")) append(0, false);
}

void write_epoch(std::uint64_t epoch)
{
    const bool is_wrong = epoch == WRONG_EPOCH;
    TRY(turbidite_begin_epoch(dataset, is_wrong && is("differs") ? 77 : epoch));
    if (is_wrong && is("inside")) TRY(turbidite_begin_epoch(dataset, 3));
    append(0, false);
    if (is_wrong && is("again")) append(0, true);
    if (is_wrong && is("truncates")) TRY(turbidite_truncate_after(dataset, 0));
    // Half as many records as those that are replaced.
    if (!all("replaces")) append(HALF, is_wrong);
    // More than the disk has room for.
    for (int i = 0; is_wrong && all("full") && i < 1500; i++) append(0, false);
    end_epoch(is_wrong);
}

#ifdef WITH_MPI
void open_with_ranks()
{
    int rank = 0;
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    makes_it = rank == RANK;
    turbidite_transport *opened = nullptr;
    TRY(turbidite_mpi_open(MPI_COMM_WORLD, &opened));
    if (!all("alone")) transport = opened;
    // Rank 0 has the lock when the others come.
    if (all("alone") && rank > 0) MPI_Barrier(MPI_COMM_WORLD);
    open_dataset(path.c_str(), &dataset);
    if (all("alone") && rank == 0) MPI_Barrier(MPI_COMM_WORLD);
    if (all("alone")) MPI_Barrier(MPI_COMM_WORLD);
    transport = opened;
    if (all("shared")) {
        turbidite_dataset *second = nullptr;
        open_dataset((path + "-other").c_str(), &second);
    }
}
#else
void forget_to_open()
{
    turbidite_dataset *other = nullptr;
    open_dataset("/dev/null/ds", &dataset);
    write_epoch(1);
    TRY(turbidite_close(dataset));
    TRY(turbidite_begin_epoch(other, 1));
}
#endif

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    mistake = argv[1], path = argv[2];
    for (std::size_t i = 0; i < COUNT; i++)
        p[i] = particle{static_cast<float>(i), {{'a', 'b', 'c', 'd', 'e', 'f'}}, i};
#ifdef WITH_MPI
    open_with_ranks();
#else
    if (is("silent")) turbidite_print_errors(0);
    if (is("unopened")) {
        forget_to_open();
        std::puts("done");
        return 0;
    }
    open_dataset(path.c_str(), &dataset);
    if (is("reopened")) {
        turbidite_dataset *second = nullptr;
        open_dataset(path.c_str(), &second);
    }
#endif
    if (is("before")) append(0, false);
    for (std::uint64_t epoch = 1; epoch <= 3; epoch++) write_epoch(epoch);
    if (is("open")) TRY(turbidite_begin_epoch(dataset, 9));
    TRY(turbidite_close(dataset));
#ifdef WITH_MPI
    TRY(turbidite_mpi_close(transport));
    MPI_Finalize();
#endif
    std::puts("done");
    return 0;
}
