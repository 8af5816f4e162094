// What it costs to write and to read a descriptor.
#include <benchmark/benchmark.h>

#include "tensorferry/wire/descriptor.h"

namespace tensorferry::wire {
namespace {

Descriptor Usual() {
  return {.lease = {.id = 7, .generation = 9},
          .key = 42,
          .nbytes = 9 << 20,
          .checksum = {},
          .ways = {LocalWay{.socket_path = "/run/user/1000/tensorferry-abcdef/gateway.sock"},
                   NetWay{.addresses = {*SocketAddress::Parse("10.0.0.5:18515")}}}};
}

void Encode(benchmark::State& state) {
  const Descriptor descriptor = Usual();
  for (auto _ : state) benchmark::DoNotOptimize(EncodeDescriptor(descriptor));
}
BENCHMARK(Encode)->Name("EncodeDescriptor");

void Decode(benchmark::State& state) {
  const std::string bytes = *EncodeDescriptor(Usual());
  for (auto _ : state) {
    benchmark::DoNotOptimize(DecodeDescriptor(std::as_bytes(std::span(bytes))));
  }
}
BENCHMARK(Decode)->Name("DecodeDescriptor");

}  // namespace
}  // namespace tensorferry::wire
