#include "tensorferry/base/convert.h"

#include <cassert>
#include <cstddef>

namespace tensorferry {
namespace {

// The loops are written for the compiler to vectorise; CMakeLists.txt asks for -O3 here, since g++
// does that only for constant lengths at -O2.
template <typename In, typename Out, typename Convert>
void Each(std::span<const In> in, std::span<Out> out, Convert convert) {
  assert(in.size() == out.size());
  const In* __restrict from = in.data();
  Out* __restrict to = out.data();
  for (size_t i = 0; i < in.size(); ++i) to[i] = convert(from[i]);
}

// Multiplying by a rounded reciprocal is off by at most two units of float32's last place. That
// never reaches a float16's or bfloat16's rounding boundary: the bits of v / 255 repeat every 8 and
// those of v / 65535 every 16, so the quotient cannot run that close to one. The exception is v /
// 65535 to float16, whose boundary may lie 2^-28 away.
constexpr float kPer255 = 1.0f / 255.0f;
constexpr float kPer65535 = 1.0f / 65535.0f;

}  // namespace

void Float32ToBfloat16(std::span<const float> in, std::span<uint16_t> out) {
  Each(in, out, [](float v) { return Bfloat16FromFloat32(v); });
}

void Float32ToFloat16(std::span<const float> in, std::span<uint16_t> out) {
  Each(in, out, [](float v) { return Float16FromFloat32(v); });
}

void Bfloat16ToFloat32(std::span<const uint16_t> in, std::span<float> out) {
  Each(in, out, [](uint16_t v) { return Float32FromBfloat16(v); });
}

void Float16ToFloat32(std::span<const uint16_t> in, std::span<float> out) {
  Each(in, out, [](uint16_t v) { return Float32FromFloat16(v); });
}

void Float64ToBfloat16(std::span<const double> in, std::span<uint16_t> out) {
  Each(in, out, [](double v) { return Bfloat16FromFloat64(v); });
}

void Float64ToFloat16(std::span<const double> in, std::span<uint16_t> out) {
  Each(in, out, [](double v) { return Float16FromFloat64(v); });
}

void Unorm8ToFloat32(std::span<const uint8_t> in, std::span<float> out) {
  Each(in, out, [](uint8_t v) { return static_cast<float>(v) / 255.0f; });
}

void Unorm8ToBfloat16(std::span<const uint8_t> in, std::span<uint16_t> out) {
  Each(in, out, [](uint8_t v) { return Bfloat16FromFloat32(static_cast<float>(v) * kPer255); });
}

void Unorm8ToFloat16(std::span<const uint8_t> in, std::span<uint16_t> out) {
  Each(in, out, [](uint8_t v) { return Float16FromFloat32(static_cast<float>(v) * kPer255); });
}

void Unorm16ToFloat32(std::span<const uint16_t> in, std::span<float> out) {
  Each(in, out, [](uint16_t v) { return static_cast<float>(v) / 65535.0f; });
}

void Unorm16ToBfloat16(std::span<const uint16_t> in, std::span<uint16_t> out) {
  Each(in, out, [](uint16_t v) { return Bfloat16FromFloat32(static_cast<float>(v) * kPer65535); });
}

void Unorm16ToFloat16(std::span<const uint16_t> in, std::span<uint16_t> out) {
  Each(in, out, [](uint16_t v) { return Float16FromFloat64(static_cast<double>(v) / 65535.0); });
}

}  // namespace tensorferry
