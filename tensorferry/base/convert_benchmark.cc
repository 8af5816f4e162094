// What conversions and packing cost: single-threaded, in bytes read and written.
#include <benchmark/benchmark.h>

#include <vector>

#include "tensorferry/base/convert.h"
#include "tensorferry/base/pack.h"

namespace tensorferry {
namespace {

// A picture of 3 x 448 x 448, and one of 64 patches of it.
constexpr int64_t kSmall = 3 * 448 * 448, kLarge = 64 * kSmall / 16;

template <typename In, typename Out, void (*convert)(std::span<const In>, std::span<Out>)>
void Convert(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  std::vector<In> in(count);
  for (size_t i = 0; i < count; ++i) in[i] = static_cast<In>(i % 251);
  std::vector<Out> out(count);
  for (auto _ : state) {
    convert(in, out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(In) + sizeof(Out)));
}
BENCHMARK(Convert<float, uint16_t, Float32ToBfloat16>)
    ->Name("Float32ToBfloat16")
    ->Arg(kSmall)
    ->Arg(kLarge);
BENCHMARK(Convert<float, uint16_t, Float32ToFloat16>)->Name("Float32ToFloat16")->Arg(kSmall);
BENCHMARK(Convert<uint16_t, float, Bfloat16ToFloat32>)->Name("Bfloat16ToFloat32")->Arg(kSmall);
BENCHMARK(Convert<uint16_t, float, Float16ToFloat32>)->Name("Float16ToFloat32")->Arg(kSmall);
BENCHMARK(Convert<double, uint16_t, Float64ToBfloat16>)->Name("Float64ToBfloat16")->Arg(kSmall);
BENCHMARK(Convert<uint8_t, float, Unorm8ToFloat32>)->Name("Unorm8ToFloat32")->Arg(kSmall);
BENCHMARK(Convert<uint8_t, uint16_t, Unorm8ToBfloat16>)->Name("Unorm8ToBfloat16")->Arg(kSmall);

// Height, width, channel to channel, height, width: what most pictures need.
void PackTransposed(benchmark::State& state) {
  const auto to = static_cast<Dtype>(state.range(0));
  std::vector<float> pixels(kSmall, 0.5f);
  const StridedTensor from = {
      .data = pixels.data(), .shape = {3, 448, 448}, .strides = {1, 448 * 3, 3}};
  std::vector<std::byte> out(static_cast<size_t>(kSmall) * ItemBytes(to));
  for (auto _ : state) {
    if (!Pack(from, to, out).ok()) state.SkipWithError("not packed");
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * (kSmall * 4 + static_cast<int64_t>(out.size())));
}
BENCHMARK(PackTransposed)
    ->Arg(static_cast<int64_t>(Dtype::kFloat32))
    ->Arg(static_cast<int64_t>(Dtype::kBfloat16))
    ->ArgName("dtype");

}  // namespace
}  // namespace tensorferry
