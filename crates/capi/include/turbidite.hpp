/*
 * Turbidite for C++11 and later: typed views of the values of columns, and statuses as exceptions. All other calls are
 * those of turbidite.h.
 *
 *     std::vector<particle> p;
 *     turbidite::check(turbidite_begin_epoch(dataset, step));
 *     turbidite_view views[] = {turbidite::values(p.data(), &particle::energy), turbidite::values(id)};
 *     turbidite::check(turbidite_append(dataset, views, 2, p.size()));
 *     turbidite::check(turbidite_end_epoch(dataset, nullptr));
 */
#ifndef TURBIDITE_HPP
#define TURBIDITE_HPP

#include <array>
#include <cstddef>
#include <stdexcept>
#include <type_traits>

#include "turbidite.h"

namespace turbidite {

/* A failed call: its status and message. */
class error : public std::runtime_error {
public:
    explicit error(turbidite_status status) : std::runtime_error(turbidite_last_error()), status_(status) {}
    turbidite_status status() const noexcept { return status_; }

private:
    turbidite_status status_;
};

/* Throws an error unless the status is TURBIDITE_OK or TURBIDITE_SKIPPED. Returns whether it is TURBIDITE_OK. */
inline bool check(turbidite_status status)
{
    if (status != TURBIDITE_OK && status != TURBIDITE_SKIPPED)
        throw error(status);
    return status == TURBIDITE_OK;
}

namespace detail {

template <std::size_t bytes, bool is_signed> struct integer;
template <> struct integer<1, true> { static const int32_t type = TURBIDITE_I8; };
template <> struct integer<2, true> { static const int32_t type = TURBIDITE_I16; };
template <> struct integer<4, true> { static const int32_t type = TURBIDITE_I32; };
template <> struct integer<8, true> { static const int32_t type = TURBIDITE_I64; };
template <> struct integer<1, false> { static const int32_t type = TURBIDITE_U8; };
template <> struct integer<2, false> { static const int32_t type = TURBIDITE_U16; };
template <> struct integer<4, false> { static const int32_t type = TURBIDITE_U32; };
template <> struct integer<8, false> { static const int32_t type = TURBIDITE_U64; };

/* Numbers and enumerations are stored as such, arrays of bytes as TURBIDITE_BYTES. Other types do not compile. */
template <typename T, bool is_enum = std::is_enum<T>::value> struct column {
    static_assert(std::is_integral<T>::value, "a column has numbers, or arrays of bytes");
    static const int32_t type = integer<sizeof(T), std::is_signed<T>::value>::type;
    static const uint32_t width = 0;
};
template <typename T> struct column<T, true> : column<typename std::underlying_type<T>::type> {};
template <> struct column<float, false> { static const int32_t type = TURBIDITE_F32; static const uint32_t width = 0; };
template <> struct column<double, false> { static const int32_t type = TURBIDITE_F64; static const uint32_t width = 0; };
template <typename T, std::size_t bytes> struct array {
    static_assert(sizeof(T) == 1, "a column has numbers, or arrays of bytes");
    static const int32_t type = TURBIDITE_BYTES;
    static const uint32_t width = static_cast<uint32_t>(bytes);
};
template <typename T, std::size_t bytes> struct column<T[bytes], false> : array<T, bytes> {};
template <typename T, std::size_t bytes> struct column<std::array<T, bytes>, false> : array<T, bytes> {};

} // namespace detail

/* Returns a view of the values at `data`, `stride` bytes apart. 0 repeats one value. */
template <typename T> turbidite_view values(const T *data, std::size_t stride = sizeof(T))
{
    return turbidite_view{data, stride, detail::column<T>::type, detail::column<T>::width};
}

/* Returns a view of a member of the structs at `data`. */
template <typename Struct, typename T> turbidite_view values(const Struct *data, const T Struct::*member)
{
    return values(data ? &(data->*member) : nullptr, sizeof(Struct));
}

/* Returns a view of a container of contiguous values, such as std::vector. */
template <typename Container>
auto values(const Container &container) -> decltype(values(container.data()))
{
    return values(container.data());
}

} // namespace turbidite

#endif /* TURBIDITE_HPP */
