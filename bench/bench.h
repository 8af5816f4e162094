// What the benchmarks share: payloads, gateways in processes of their own, medians and rows.
//
//   const Gateway gateway(options, "tensorferry");
//   const Handle handle = gateway.TcpHandle(size_index, variant);
//   us = TimedPull(size_index, variant, into, [&] { puller->PullInto(handle, into, {}); });
//   Report(options, {.what = "tcp", .nbytes = kSizes[size_index], .value = us, .unit = "us"});
//
// Absolute times swing by a factor of two on a shared machine: compare ratios of what one run
// measured in turns. Any failure ends the program with exit code 1.
#ifndef TENSORFERRY_BENCH_BENCH_H_
#define TENSORFERRY_BENCH_BENCH_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/puller/puller.h"

namespace tensorferry::bench {

using BenchClock = std::chrono::steady_clock;

struct Options {
  bool json = false;
  bool netns = false;  // put the gateways into a network namespace of their own
  int rounds = 15;
  std::string self;  // this program
};

[[noreturn]] void Fail(std::string_view why);

// ---- payloads ----

inline constexpr uint64_t kSizes[] = {64 << 10, 1 << 20, 9 << 20, 32 << 20};
// Of each size there are two payloads with different bytes, so that stale ones show.
inline constexpr uint64_t kVariants = 2;

// All payloads in one piece, and where each begins.
const std::vector<std::byte>& Payloads();
uint64_t PayloadOffset(size_t size_index, uint64_t variant);
std::span<const std::byte> Payload(size_t size_index, uint64_t variant);

// ---- gateways ----

// A child of this process, killed with it.
class Gateway {
 public:
  // `kind` is "bare" or "tensorferry". Returns once it is ready.
  Gateway(const Options& options, std::string_view kind);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Of the bare sockets' gateway.
  SocketAddress address() const;
  // Of ours: ways over tcp only, or over local only.
  Handle TcpHandle(size_t size_index, uint64_t variant) const;
  Handle LocalHandle(size_t size_index, uint64_t variant) const;
  double CpuSeconds() const;

 private:
  Handle HandleAt(size_t line, size_t size_index) const;
  pid_t pid_ = -1;
  UniqueFd stdin_;                  // closing it ends the child
  std::vector<std::string> lines_;  // what it said about itself
};

// What runs in the child: says on stdout how to reach it, then serves for ever.
[[noreturn]] void ServeGateway(std::string_view kind, const std::string& host);

// Two namespaces joined by a veth pair, for as long as this lives: this process is in the one,
// gateways started with Options::netns are in the other.
class Namespaces {
 public:
  Namespaces();
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;
};

// ---- measuring and reporting ----

double Median(std::vector<double> values);
// How long `work` takes, in microseconds.
double Timed(const std::function<void()>& work);
// The same of something that fills `into`, which is then compared with the payload, untimed.
double TimedPull(size_t size_index, uint64_t variant, std::span<std::byte> into,
                 const std::function<void()>& pull);

struct Row {
  std::string what;
  uint64_t nbytes = 0;  // 0: has no size
  double value = 0;
  std::string unit;
  double at_least = 0, at_most = 0;  // the goal, as the one or the other; 0: none
  std::vector<std::pair<std::string, double>> details = {};
};
void Report(const Options& options, const Row& row);

// ---- the benchmarks ----

void BenchTcp(const Options& options);    // pulls over tcp against bare sockets
void BenchLocal(const Options& options);  // views and copies of leases of the same host
void BenchStage(const Options& options);  // staging and publishing
void BenchIdle(const Options& options);   // what a gateway and a worker cost that do nothing

}  // namespace tensorferry::bench

#endif  // TENSORFERRY_BENCH_BENCH_H_
