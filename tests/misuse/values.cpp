// Views of C++: values DATASET writes an epoch with a column of each type, and one that is refused.
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <turbidite.hpp>

enum class kind : std::uint8_t { ion = 3 };

struct particle {
    float energy;
    double x;
    long long id;
    std::uint16_t cell;
    kind species;
    char name[5];
    std::array<unsigned char, 3> colour;
};

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const turbidite_column columns[] = {
        {"energy", TURBIDITE_F32, 0, nullptr}, {"x", TURBIDITE_F64, 0, nullptr},    {"id", TURBIDITE_I64, 0, nullptr},
        {"cell", TURBIDITE_U16, 0, nullptr},   {"species", TURBIDITE_U8, 0, nullptr}, {"name", TURBIDITE_BYTES, 5, nullptr},
        {"colour", TURBIDITE_BYTES, 3, nullptr}, {"weight", TURBIDITE_F32, 0, nullptr}};
    std::vector<particle> p(1000);
    for (std::size_t i = 0; i < p.size(); i++) {
        p[i] = particle{static_cast<float>(i), 0.5 * static_cast<double>(i), static_cast<long long>(i) - 500,
                        static_cast<std::uint16_t>(i), kind::ion, {}, {{1, 2, 3}}};
        std::memcpy(p[i].name, "abcde", 5);
    }
    const std::vector<float> weight(p.size(), 2.0f);
    turbidite_dataset *dataset = nullptr;
    turbidite::check(turbidite_open(argv[1], columns, 8, "energy", nullptr, nullptr, &dataset));
    turbidite_view views[] = {turbidite::values(p.data(), &particle::energy), turbidite::values(p.data(), &particle::x),
                              turbidite::values(&p[0].id, sizeof p[0]),       turbidite::values(p.data(), &particle::cell),
                              turbidite::values(p.data(), &particle::species), turbidite::values(p.data(), &particle::name),
                              turbidite::values(p.data(), &particle::colour), turbidite::values(weight)};
    turbidite::check(turbidite_begin_epoch(dataset, 1));
    turbidite::check(turbidite_append(dataset, views, 8, p.size()));
    turbidite::check(turbidite_end_epoch(dataset, nullptr));
    turbidite::check(turbidite_begin_epoch(dataset, 2));
    views[0] = turbidite::values(p.data(), &particle::x);
    try {
        turbidite::check(turbidite_append(dataset, views, 8, p.size()));
    } catch (const turbidite::error &error) {
        std::printf("%d %s\n", static_cast<int>(error.status()), error.what());
    }
    const turbidite_status ended = turbidite_end_epoch(dataset, nullptr);
    std::printf("%d\n", static_cast<int>(ended));
    turbidite::check(turbidite_close(dataset));
}
