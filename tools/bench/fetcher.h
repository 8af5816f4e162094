// The worker's end of a benchmark: fetches what a gateway has offered.
//
//   auto worker = Fetching::Create(options);
//   auto fetcher = worker->NewFetcher(0);                        // one for each stream
//   absl::StatusOr<std::vector<Fetched>> got = fetcher->Fetch(offers, nbytes, &began);  // timed
//
// Thread-safety: a fetcher is used by one thread, the rest from any.
// Ownership: the Fetching outlives its fetchers; fetched bytes are readable until the next Fetch.
#ifndef TENSORFERRY_TOOLS_BENCH_FETCHER_H_
#define TENSORFERRY_TOOLS_BENCH_FETCHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/net.h"
#include "tensorferry/puller/puller.h"
#include "tools/bench/call.h"
#include "tools/bench/engines.h"
#include "tools/bench/talk.h"

namespace tensorferry::tools::bench {

struct FetchOptions {
  Engine engine;
  uint64_t largest = 0;
  size_t streams = 1;
  size_t batch = 1;
  size_t workers = 1;       // pullers; streams share them evenly
  bool copy = false;        // into memory of the caller, not a view
  bool one_by_one = false;  // the tensors of a batch
  bool rpc = false;
  AllowList allow = AllowList::Loopback();
  std::string host = "127.0.0.1";  // that the gateway reaches this worker at
  std::string nixl_lib = {};
};

struct Fetched {
  std::span<const std::byte> bytes;
  std::string_view transport;
};

class Fetcher {
 public:
  virtual ~Fetcher() = default;
  // Lets go of what was fetched before.
  virtual void Clear() = 0;
  // All of them. Where only a part of this is what is measured, `began` is set to when it began.
  virtual absl::StatusOr<std::vector<Fetched>> Fetch(std::span<const Offer> offers, uint64_t nbytes,
                                                     std::optional<Instant>* began) = 0;
};

class Fetching {
 public:
  // kLaneOff for an engine that cannot be had here; the engine's own errors.
  static absl::StatusOr<std::unique_ptr<Fetching>> Create(FetchOptions options);
  ~Fetching();

  absl::StatusOr<std::unique_ptr<Fetcher>> NewFetcher(size_t stream);
  // Where the gateway calls; empty without RPCs.
  std::string rpc() const { return server_ ? server_->listen() : ""; }
  // Of threads that are not the caller's: what looking at the bytes has cost.
  double check_cpu_seconds() const { return server_ ? server_->check_cpu_seconds() : 0; }

 private:
  explicit Fetching(FetchOptions options) : options_(std::move(options)) {}
  absl::StatusOr<std::unique_ptr<Puller>> NewPuller() const;

  const FetchOptions options_;
  std::vector<std::unique_ptr<Puller>> pullers_;
  std::unique_ptr<CallServer> server_;
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_FETCHER_H_
