// The payloads of benchmarks: different bytes for every key, so that stale ones show.
//
//   FillPattern(key, span);                       // at the gateway, before the clock starts
//   if (!IsPattern(key, received)) ...            // at the worker, after it has stopped
//
// The same as tests/peers/rust_exporter exports, so that its bytes are checked here, too.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_TOOLS_BENCH_PATTERN_H_
#define TENSORFERRY_TOOLS_BENCH_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorferry::tools::bench {

void FillPattern(int64_t key, std::span<std::byte> bytes);
bool IsPattern(int64_t key, std::span<const std::byte> bytes);

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_PATTERN_H_
