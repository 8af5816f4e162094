// Little-endian bytes: the only place where integers become bytes and back.
//
//   Reader in(bytes);
//   const uint64_t addr = in.U64();
//   const std::span<const std::byte> host = in.Rest();
//   if (!in.ok()) return too_short;        // one check after any number of reads
//
// A Reader never reads beyond its bytes: a read that would takes nothing, gives zeros and makes
// ok() false for good. A Writer is for layouts whose size the caller knows: what does not fit is a
// bug of the caller.
// Thread-safety: none, values on the stack. Neither owns the bytes.
#ifndef TENSORFERRY_WIRE_BYTES_H_
#define TENSORFERRY_WIRE_BYTES_H_

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace tensorferry::wire {

// Tensors travel as they lie in memory, so that a big-endian machine needs more than swapped
// headers.
static_assert(std::endian::native == std::endian::little);

template <std::unsigned_integral T>
T LoadLe(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <std::unsigned_integral T>
void StoreLe(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  size_t remaining() const { return bytes_.size(); }

  uint8_t U8() { return Integer<uint8_t>(); }
  uint16_t U16() { return Integer<uint16_t>(); }
  uint32_t U32() { return Integer<uint32_t>(); }
  uint64_t U64() { return Integer<uint64_t>(); }
  int64_t I64() { return static_cast<int64_t>(U64()); }

  std::array<uint8_t, 16> Array16() {
    std::array<uint8_t, 16> out = {};
    const auto from = Take(out.size());
    if (!from.empty()) std::memcpy(out.data(), from.data(), out.size());
    return out;
  }
  // Empty when fewer than n are left.
  std::span<const std::byte> Take(size_t n) {
    if (n > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const auto out = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return out;
  }
  std::span<const std::byte> Rest() { return Take(bytes_.size()); }
  // Whether the next n bytes are all there and zero.
  bool Zeros(size_t n) {
    for (const std::byte b : Take(n)) {
      if (b != std::byte{0}) return false;
    }
    return ok_;
  }

 private:
  template <std::unsigned_integral T>
  T Integer() {
    const auto from = Take(sizeof(T));
    return from.empty() ? T{0} : LoadLe<T>(from.data());
  }

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

class Writer {
 public:
  // Starts at the first of `bytes`, which has room for all that follows.
  explicit Writer(std::span<std::byte> bytes) : start_(bytes.data()), at_(bytes.data()) {}

  size_t written() const { return static_cast<size_t>(at_ - start_); }

  void U8(uint8_t v) { Integer(v); }
  void U16(uint16_t v) { Integer(v); }
  void U32(uint32_t v) { Integer(v); }
  void U64(uint64_t v) { Integer(v); }
  void I64(int64_t v) { Integer(static_cast<uint64_t>(v)); }
  void Bytes(std::span<const std::byte> from) {
    if (!from.empty()) std::memcpy(at_, from.data(), from.size());
    at_ += from.size();
  }
  void Bytes(std::span<const uint8_t> from) { Bytes(std::as_bytes(from)); }
  void Text(std::string_view text) { Bytes(AsBytes(text)); }
  void Zeros(size_t n) {
    std::memset(at_, 0, n);
    at_ += n;
  }

 private:
  template <std::unsigned_integral T>
  void Integer(T v) {
    StoreLe(at_, v);
    at_ += sizeof(T);
  }

  std::byte* start_;
  std::byte* at_;
};

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_BYTES_H_
