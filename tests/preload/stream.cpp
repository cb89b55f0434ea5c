// Writes what writer.c writes, by C++ streams.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

struct Record {
    double key;
    std::uint64_t number;
};

int main(int, char **arguments)
{
    for (int epoch = 1; epoch <= 3; epoch++) {
        const auto folder = std::filesystem::path(arguments[1]) / ("E." + std::to_string(epoch));
        std::filesystem::create_directories(folder);
        std::ofstream file(folder / "rows.0", std::ios::binary);
        file.write("header\0", 8);
        for (std::uint64_t number = 0; number < 1000; number++) {
            const Record record{static_cast<double>(number * 7919 % 1000) / epoch, number};
            file.write(reinterpret_cast<const char *>(&record), sizeof record);
        }
        if (!file.flush())
            return 1;
    }
}
