// Numbers to the float dtypes that travel, and back.
//
//   std::vector<uint16_t> out(pixels.size());
//   Unorm8ToBfloat16(pixels, out);                    // 0..255 to 0..1
//   uint16_t half = Float16FromFloat32(0.1f);         // one element
//
// bfloat16 and float16 are held as their 16 bits. Every conversion gives the representable value
// that is nearest to the exact input, ties to even; beyond the range, infinity; float16's
// subnormals are produced and read. "Unorm" inputs stand for value / 255 and value / 65535, and the
// result is nearest to that exact quotient, not to a rounded one. A NaN stays a NaN: quiet, with
// its sign and as much of its payload as fits. Widening is exact. Spans: `out` is as long as `in`
// and does not overlap it.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_BASE_CONVERT_H_
#define TENSORFERRY_BASE_CONVERT_H_

#include <bit>
#include <cstdint>
#include <span>

#include "tensorferry/base/export.h"

namespace tensorferry {

constexpr uint16_t Bfloat16FromFloat32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // The rounding bias would carry a NaN into infinity or zero.
  const uint32_t quiet = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

constexpr uint16_t Float16FromFloat32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0x0fffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  // Adding 1/2 lets the adder round to float16's smallest step, 2^-24, which is the last bit there.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u) +
                              0.5f) -
      std::bit_cast<uint32_t>(0.5f);
  const uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;  // below 2^-14
  half = magnitude >= 0x47800000u ? 0x7c00u : half;              // from 2^16
  half = magnitude > 0x7f800000u ? quiet : half;
  return static_cast<uint16_t>(sign | half);
}

constexpr float Float32FromBfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

constexpr float Float32FromFloat16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) + (224u << 23);
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  uint32_t single = magnitude < 0x0400u ? subnormal : normal;
  single = magnitude >= 0x7c00u ? special : single;
  return std::bit_cast<float>(sign | single);
}

// Keeps in the last bit whether anything was cut off, so that rounding once more, to a dtype with
// at least two bits less, gives what rounding `value` itself would.
constexpr float Float32RoundedToOdd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool away_from_zero = value < 0 ? back < value : back > value;
  bits -= away_from_zero ? 1u : 0u;
  bits |= back != value ? 1u : 0u;
  return std::bit_cast<float>(bits);
}

constexpr uint16_t Bfloat16FromFloat64(double value) {
  return Bfloat16FromFloat32(Float32RoundedToOdd(value));
}
constexpr uint16_t Float16FromFloat64(double value) {
  return Float16FromFloat32(Float32RoundedToOdd(value));
}

TENSORFERRY_EXPORT void Float32ToBfloat16(std::span<const float> in, std::span<uint16_t> out);
TENSORFERRY_EXPORT void Float32ToFloat16(std::span<const float> in, std::span<uint16_t> out);
TENSORFERRY_EXPORT void Bfloat16ToFloat32(std::span<const uint16_t> in, std::span<float> out);
TENSORFERRY_EXPORT void Float16ToFloat32(std::span<const uint16_t> in, std::span<float> out);
TENSORFERRY_EXPORT void Float64ToBfloat16(std::span<const double> in, std::span<uint16_t> out);
TENSORFERRY_EXPORT void Float64ToFloat16(std::span<const double> in, std::span<uint16_t> out);

TENSORFERRY_EXPORT void Unorm8ToFloat32(std::span<const uint8_t> in, std::span<float> out);
TENSORFERRY_EXPORT void Unorm8ToBfloat16(std::span<const uint8_t> in, std::span<uint16_t> out);
TENSORFERRY_EXPORT void Unorm8ToFloat16(std::span<const uint8_t> in, std::span<uint16_t> out);
TENSORFERRY_EXPORT void Unorm16ToFloat32(std::span<const uint16_t> in, std::span<float> out);
TENSORFERRY_EXPORT void Unorm16ToBfloat16(std::span<const uint16_t> in, std::span<uint16_t> out);
TENSORFERRY_EXPORT void Unorm16ToFloat16(std::span<const uint16_t> in, std::span<uint16_t> out);

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_CONVERT_H_
