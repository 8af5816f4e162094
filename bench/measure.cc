#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/bench.h"
#include "tensorferry/base/text.h"

namespace tensorferry::bench {

void Fail(std::string_view why) {
  std::fprintf(stderr, "tensorferry_bench: %.*s\n", static_cast<int>(why.size()), why.data());
  std::exit(1);
}

uint64_t PayloadOffset(size_t size_index, uint64_t variant) {
  uint64_t offset = 0;
  for (size_t i = 0; i < size_index; ++i) offset += kSizes[i] * kVariants;
  return offset + kSizes[size_index] * variant;
}

const std::vector<std::byte>& Payloads() {
  static const std::vector<std::byte> payloads = [] {
    std::vector<std::byte> out(PayloadOffset(std::size(kSizes) - 1, kVariants));
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (std::byte& b : out) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      b = static_cast<std::byte>(state >> 32);
    }
    return out;
  }();
  return payloads;
}

std::span<const std::byte> Payload(size_t size_index, uint64_t variant) {
  return std::span(Payloads()).subspan(PayloadOffset(size_index, variant), kSizes[size_index]);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Timed(const std::function<void()>& work) {
  const BenchClock::time_point start = BenchClock::now();
  work();
  return std::chrono::duration<double, std::micro>(BenchClock::now() - start).count();
}

double TimedPull(size_t size_index, uint64_t variant, std::span<std::byte> into,
                 const std::function<void()>& pull) {
  const double us = Timed(pull);
  const std::span<const std::byte> expected = Payload(size_index, variant);
  if (std::memcmp(into.data(), expected.data(), expected.size()) != 0) {
    Fail(StrCat("wrong bytes in a pull of ", expected.size()));
  }
  return us;
}

void Report(const Options& options, const Row& row) {
  const double goal = row.at_least > 0 ? row.at_least : row.at_most;
  const bool met = row.at_least > 0 ? row.value >= row.at_least : row.value <= row.at_most;
  if (options.json) {
    std::printf("{\"benchmark\":\"%s\",\"path\":\"%s\"", row.what.c_str(),
                options.netns ? "netns" : "loopback");
    if (row.nbytes > 0)
      std::printf(",\"nbytes\":%llu", static_cast<unsigned long long>(row.nbytes));
    std::printf(",\"value\":%.6g,\"unit\":\"%s\"", row.value, row.unit.c_str());
    if (goal > 0) std::printf(",\"goal\":%.6g,\"met\":%s", goal, met ? "true" : "false");
    for (const auto& [name, value] : row.details) std::printf(",\"%s\":%.6g", name.c_str(), value);
    std::printf("}\n");
  } else {
    std::string size;
    if (row.nbytes > 0) size = StrCat(row.nbytes >> 10, " KiB");
    std::printf("%-26s %9s  %9.2f %-8s", row.what.c_str(), size.c_str(), row.value,
                row.unit.c_str());
    if (goal > 0) {
      std::printf("  %s %.6g: %s", row.at_least > 0 ? "at least" : "at most", goal,
                  met ? "met" : "MISSED");
    }
    for (size_t i = 0; i < row.details.size(); ++i) {
      std::printf("%s%s %.6g%s", i == 0 ? "  (" : ", ", row.details[i].first.c_str(),
                  row.details[i].second, i + 1 == row.details.size() ? ")" : "");
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace tensorferry::bench
