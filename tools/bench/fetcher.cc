#include "tools/bench/fetcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/bench/bare_sockets.h"
#include "tools/bench/line_stream.h"
#include "tools/nixl_engines.h"
#include "tools/output.h"
#include "tools/ucx_engines.h"

namespace tensorferry::tools::bench {
namespace {

PullOptions Patient() { return {.timeout = kPatience}; }

std::string HandleTransport(const Engine& engine) {
  if (engine.transport == "nixl" || engine.transport == "file") return engine.transport;
  return "tensorferry";
}

// Through a Puller: views, or copies into a buffer of the caller's.
class PullFetcher final : public Fetcher {
 public:
  PullFetcher(Puller* puller, const FetchOptions& options)
      : puller_(puller),
        copy_(options.copy),
        one_by_one_(options.one_by_one || options.batch == 1),
        transport_(HandleTransport(options.engine)),
        into_(copy_ ? options.largest * options.batch : 0) {}

  void Clear() override { views_.clear(); }

  absl::StatusOr<std::vector<Fetched>> Fetch(std::span<const Offer> offers, uint64_t nbytes,
                                             std::optional<Instant>*) override {
    handles_.clear();
    for (const Offer& offer : offers) {
      handles_.push_back(
          {.transport = transport_, .descriptor = offer.descriptor, .nbytes = nbytes});
    }
    std::vector<Fetched> fetched;
    if (copy_) {
      for (size_t i = 0; i < handles_.size(); ++i) {
        const std::span<std::byte> into = std::span(into_).subspan(i * nbytes, nbytes);
        const absl::StatusOr<PulledInto> done = puller_->PullInto(handles_[i], into, Patient());
        if (!done.ok()) return done.status();
        fetched.push_back({into, done->transport});
      }
      return fetched;
    }
    if (one_by_one_) {
      for (const Handle& handle : handles_) {
        absl::StatusOr<View> view = puller_->Pull(handle, Patient());
        if (!view.ok()) return view.status();
        views_.push_back(*std::move(view));
      }
    } else {
      for (absl::StatusOr<View>& view : puller_->PullAll(handles_, Patient())) {
        if (!view.ok()) return view.status();
        views_.push_back(*std::move(view));
      }
    }
    for (const View& view : views_) fetched.push_back({view.bytes(), view.transport()});
    return fetched;
  }

 private:
  Puller* const puller_;
  const bool copy_;
  const bool one_by_one_;
  const std::string transport_;
  std::vector<std::byte> into_;
  std::vector<Handle> handles_;
  std::vector<View> views_;
};

// One copy of memory that is mapped already: what no copy can be faster than.
class MemcpyFetcher final : public Fetcher {
 public:
  MemcpyFetcher(Puller* puller, const FetchOptions& options)
      : puller_(puller), into_(options.largest * options.batch) {}

  void Clear() override { views_.clear(); }

  absl::StatusOr<std::vector<Fetched>> Fetch(std::span<const Offer> offers, uint64_t nbytes,
                                             std::optional<Instant>* began) override {
    for (const Offer& offer : offers) {
      absl::StatusOr<View> view = puller_->Pull(
          {.transport = "tensorferry", .descriptor = offer.descriptor, .nbytes = nbytes},
          Patient());
      if (!view.ok()) return view.status();
      views_.push_back(*std::move(view));
    }
    std::vector<Fetched> fetched;
    *began = RealClock().Now();
    for (size_t i = 0; i < views_.size(); ++i) {
      const std::span<std::byte> into = std::span(into_).subspan(i * nbytes, nbytes);
      std::memcpy(into.data(), views_[i].bytes().data(), nbytes);
      fetched.push_back({into, "memcpy"});
    }
    return fetched;
  }

 private:
  Puller* const puller_;
  std::vector<std::byte> into_;
  std::vector<View> views_;
};

class SocketsFetcher final : public Fetcher {
 public:
  explicit SocketsFetcher(const FetchOptions& options)
      : allow_(options.allow),
        spins_(options.engine.spins()),
        into_(options.largest * options.batch) {}

  void Clear() override {}

  absl::StatusOr<std::vector<Fetched>> Fetch(std::span<const Offer> offers, uint64_t nbytes,
                                             std::optional<Instant>*) override {
    // One connection is the best up to here; two above.
    constexpr uint64_t kOneConnection = uint64_t{2} << 20;
    const size_t connections = nbytes > kOneConnection ? 2 : 1;
    std::vector<Fetched> fetched;
    for (size_t i = 0; i < offers.size(); ++i) {
      const absl::StatusOr<BareRange> range = ParseRange(offers[i].descriptor);
      if (!range.ok()) return range.status();
      if (!client_ || connections_ != connections) {
        if (absl::Status s = allow_.CheckDial(range->server); !s.ok()) return s;
        auto client = BareSocketClient::Connect(range->server, connections, spins_);
        if (!client.ok()) return client.status();
        client_ = *std::move(client);
        connections_ = connections;
      }
      const std::span<std::byte> into = std::span(into_).subspan(i * nbytes, nbytes);
      if (absl::Status s = client_->Pull(range->offset, into); !s.ok()) return s;
      fetched.push_back({into, "sockets"});
    }
    return fetched;
  }

 private:
  const AllowList allow_;
  const bool spins_;
  std::vector<std::byte> into_;
  size_t connections_ = 0;
  std::unique_ptr<BareSocketClient> client_;
};

// Of whole calls: all was done, and looked at, when the gateway says that it is over.
class CallFetcher final : public Fetcher {
 public:
  void Clear() override {}
  absl::StatusOr<std::vector<Fetched>> Fetch(std::span<const Offer> offers, uint64_t,
                                             std::optional<Instant>*) override {
    std::vector<Fetched> fetched;
    for (const Offer& offer : offers) fetched.push_back({{}, offer.transport});
    return fetched;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fetching>> Fetching::Create(FetchOptions options) {
  std::unique_ptr<Fetching> fetching(new Fetching(std::move(options)));
  const Engine& engine = fetching->options_.engine;
  if (engine.transport != "grpc" && engine.transport != "sockets") {
    for (size_t i = 0; i < fetching->options_.workers; ++i) {
      absl::StatusOr<std::unique_ptr<Puller>> puller = fetching->NewPuller();
      if (!puller.ok()) return puller.status();
      fetching->pullers_.push_back(*std::move(puller));
    }
  }
  if (fetching->options_.rpc) {
    auto server =
        CallServer::Create(fetching->options_.host,
                           fetching->pullers_.empty() ? nullptr : fetching->pullers_.front().get());
    if (!server.ok()) return server.status();
    fetching->server_ = *std::move(server);
  }
  return fetching;
}

Fetching::~Fetching() = default;

absl::StatusOr<std::unique_ptr<Puller>> Fetching::NewPuller() const {
  const Engine& engine = options_.engine;
  PullerOptions puller;
  puller.allow = options_.allow;
  puller.log = PrintLog("bench");
  puller.local = engine.maps();
  puller.tcp = engine.transport == "tcp";
  if (engine.transport == "file") puller.file.emplace();
  // And what stands around the payload of a READ.
  constexpr uint64_t kMargin = 4096;
  puller.landing_bytes = engine.maps() || options_.copy
                             ? 0
                             : (options_.largest + kMargin) * options_.batch *
                                   ((options_.streams + options_.workers - 1) / options_.workers);
  if (engine.transport == "nixl") {
    // Its READs always land there.
    puller.landing_bytes = (options_.largest + kMargin) * options_.batch * options_.streams;
    auto nixl = OpenNixlPull({.lib = options_.nixl_lib}, options_.allow, puller.log);
    if (!nixl.ok()) return nixl.status();
    puller.engines.push_back(*std::move(nixl));
  }
  if (engine.transport == "ucx") {
    auto ucx =
        OpenUcxPull({.trusted_network = true, .get = engine.ucx_get()}, options_.allow, puller.log);
    if (!ucx.ok()) return ucx.status();
    puller.engines.push_back(*std::move(ucx));
  }
  return Puller::Create(std::move(puller));
}

absl::StatusOr<std::unique_ptr<Fetcher>> Fetching::NewFetcher(size_t stream) {
  if (options_.rpc) return std::make_unique<CallFetcher>();
  if (options_.engine.transport == "sockets") return std::make_unique<SocketsFetcher>(options_);
  Puller* const puller = pullers_[stream % pullers_.size()].get();
  if (options_.engine.transport == "memcpy") {
    return std::make_unique<MemcpyFetcher>(puller, options_);
  }
  return std::make_unique<PullFetcher>(puller, options_);
}

}  // namespace tensorferry::tools::bench
