#include "tools/bench/offering.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "tensorferry/arena/memory_limit.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/host.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/file/shm_files.h"
#include "tensorferry/exporter/exporter.h"
#include "tools/bench/bare_sockets.h"
#include "tools/bench/call.h"
#include "tools/bench/engines.h"
#include "tools/nixl_engines.h"
#include "tools/output.h"
#include "tools/settings.h"
#include "tools/ucx_engines.h"

namespace tensorferry::tools::bench {
namespace {

using Spans = std::vector<std::span<std::byte>>;

// Memory of the caller's, touched before it is measured.
class OwnMemory {
 public:
  Spans Take(uint64_t nbytes, uint64_t count) {
    if (bytes_.size() < nbytes * count) bytes_.resize(nbytes * count);
    Spans spans;
    for (uint64_t i = 0; i < count; ++i) {
      spans.push_back(std::span(bytes_).subspan(i * nbytes, nbytes));
    }
    return spans;
  }

 private:
  std::vector<std::byte> bytes_;
};

// local, tcp, ucx, nixl: leases of an exporter, offered by descriptor or sent in whole calls.
class LeaseOffering final : public Offering {
 public:
  static absl::StatusOr<std::unique_ptr<Offering>> Create(const Opening& opening,
                                                          const std::string& host) {
    auto offering = std::make_unique<LeaseOffering>(opening);
    const Engine engine = *FindEngine(opening.engine);
    ExporterOptions options;
    // Every tensor that is under way, one more, and what fragments.
    constexpr uint64_t kSlack = uint64_t{1} << 20;
    options.arena_bytes =
        (opening.streams * opening.batch + 1) * (opening.largest + kSlack) + 16 * kSlack;
    options.log = PrintLog("bench");
    options.max_claim_percent = 100;
    const std::string listen = SocketAddress::ParseHost(host, 0)->ToString();
    if (engine.maps()) options.local_socket = offering->local_socket_.path();
    if (engine.transport == "tcp") options.listen = listen;
    if (engine.transport == "nixl") {
      auto nixl = OpenNixlExport({.lib = opening.nixl_lib}, listen, options.log);
      if (!nixl.ok()) return nixl.status();
      options.engines.push_back(*std::move(nixl));
    }
    if (engine.transport == "ucx") {
      auto ucx = OpenUcxExport({.trusted_network = true, .get = engine.ucx_get()}, listen,
                               /*beside_tcp=*/false, options.log);
      if (!ucx.ok()) return ucx.status();
      options.engines.push_back(*std::move(ucx));
    }
    auto exporter = Exporter::Create(std::move(options));
    if (!exporter.ok()) return exporter.status();
    offering->exporter_ = *std::move(exporter);
    offering->exporter_->WaitPrefaulted();
    if (!opening.rpc.empty()) {
      offering->client_ = CallClient::Create(opening.rpc, offering->exporter_.get(),
                                             {.lanes = {Lane::kInline, engine.lane},
                                              .transports = {"grpc", engine.transport},
                                              .landing_bytes = opening.largest,
                                              .host = ThisHost(),
                                              .descriptor_versions = {1},
                                              .instance_id = "bench"});
    }
    return offering;
  }

  explicit LeaseOffering(const Opening& opening)
      : opening_(opening), smg_(FindEngine(opening.engine)->transport == "nixl") {}

  absl::StatusOr<std::unique_ptr<Shelf>> NewShelf() override;
  double ArenaBytesPerTensor() const override {
    const ExporterStats stats = exporter_->stats();
    const uint64_t leases = stats.published + stats.writing;
    return leases == 0 ? 0 : static_cast<double>(stats.used_bytes) / static_cast<double>(leases);
  }

 private:
  class LeaseShelf;
  const Opening opening_;
  const bool smg_;
  const LocalSocket local_socket_{""};
  std::unique_ptr<Exporter> exporter_;
  std::unique_ptr<CallClient> client_;  // null: descriptors
};

class LeaseOffering::LeaseShelf final : public Shelf {
 public:
  explicit LeaseShelf(LeaseOffering* offering) : offering_(offering) {}

  void Clear() override {
    for (Lease& lease : leases_) lease.ReadersAreDone();
    leases_.clear();
    staged_.clear();
  }

  absl::StatusOr<Spans> Stage(uint64_t nbytes, uint64_t count) override {
    if (offering_->opening_.copy_in) return sources_ = memory_.Take(nbytes, count);
    Spans spans;
    for (uint64_t i = 0; i < count; ++i) {
      staged_.push_back(offering_->exporter_->Stage(nbytes));
      if (!staged_.back().in_arena()) {
        return MakeError(Reason::kArenaFull, StrCat("no room for ", nbytes, " bytes more"));
      }
      spans.push_back(staged_.back().bytes());
    }
    return spans;
  }

  absl::StatusOr<std::vector<Offered>> Offer(int64_t key) override {
    for (Staged& staged : staged_) {
      leases_.push_back(std::move(staged).Publish({.key = key + Next()}));
    }
    for (const auto& source : std::exchange(sources_, {})) {
      leases_.push_back(offering_->exporter_->Export(source, {.key = key + Next()}));
    }
    std::vector<Offered> offered;
    for (const Lease& lease : leases_) {
      if (offering_->client_) {
        const absl::StatusOr<Called> called = offering_->client_->Send(lease, lease.key());
        if (!called.ok()) return called.status();
        offered.push_back({.call = called->took, .transport = called->transport});
        continue;
      }
      absl::StatusOr<std::string> descriptor =
          offering_->smg_ ? lease.SmgDescriptor() : lease.Descriptor();
      if (!descriptor.ok()) return descriptor.status();
      offered.push_back({.descriptor = *std::move(descriptor)});
    }
    return offered;
  }

 private:
  int64_t Next() const { return static_cast<int64_t>(leases_.size()); }

  LeaseOffering* const offering_;
  OwnMemory memory_;
  Spans sources_;
  std::vector<Staged> staged_;
  std::vector<Lease> leases_;
};

absl::StatusOr<std::unique_ptr<Shelf>> LeaseOffering::NewShelf() {
  return std::make_unique<LeaseShelf>(this);
}

// file: a file under /dev/shm for each, as SMG's gateways write them.
class FileOffering final : public Offering {
 public:
  static absl::StatusOr<std::unique_ptr<Offering>> Create() {
    auto files = engine::ShmFiles::Open({.log = PrintLog("bench")});
    if (!files.ok()) return files.status();
    auto offering = std::make_unique<FileOffering>();
    offering->files_ = *std::move(files);
    return offering;
  }
  absl::StatusOr<std::unique_ptr<Shelf>> NewShelf() override {
    return std::make_unique<FileShelf>(files_.get());
  }

 private:
  class FileShelf final : public Shelf {
   public:
    explicit FileShelf(engine::ShmFiles* files) : files_(files) {}
    void Clear() override { written_.clear(); }
    absl::StatusOr<Spans> Stage(uint64_t nbytes, uint64_t count) override {
      return sources_ = memory_.Take(nbytes, count);
    }
    absl::StatusOr<std::vector<Offered>> Offer(int64_t) override {
      std::vector<Offered> offered;
      for (const auto& source : sources_) {
        absl::StatusOr<engine::ShmFile> file = files_->Write(source);
        if (!file.ok()) return file.status();
        offered.push_back({.descriptor = file->name()});
        written_.push_back(*std::move(file));
      }
      return offered;
    }

   private:
    engine::ShmFiles* const files_;
    OwnMemory memory_;
    Spans sources_;
    std::vector<engine::ShmFile> written_;
  };
  std::unique_ptr<engine::ShmFiles> files_;
};

// grpc: bytes in messages, written there in the first place.
class InlineOffering final : public Offering {
 public:
  explicit InlineOffering(const std::string& worker)
      : client_(CallClient::Create(worker, /*exporter=*/nullptr, {})) {}
  absl::StatusOr<std::unique_ptr<Shelf>> NewShelf() override {
    return std::make_unique<InlineShelf>(client_.get());
  }

 private:
  class InlineShelf final : public Shelf {
   public:
    explicit InlineShelf(const CallClient* client) : client_(client) {}
    void Clear() override {}
    absl::StatusOr<Spans> Stage(uint64_t nbytes, uint64_t count) override {
      messages_.resize(count);
      Spans spans;
      for (CallClient::Message& message : messages_) {
        spans.push_back(CallClient::Prepare(&message, nbytes));
      }
      return spans;
    }
    absl::StatusOr<std::vector<Offered>> Offer(int64_t key) override {
      std::vector<Offered> offered;
      for (CallClient::Message& message : messages_) {
        const absl::StatusOr<Called> called = client_->Send(&message, key++);
        if (!called.ok()) return called.status();
        offered.push_back({.call = called->took, .transport = called->transport});
      }
      return offered;
    }

   private:
    const CallClient* const client_;
    std::vector<CallClient::Message> messages_;
  };
  const std::unique_ptr<CallClient> client_;
};

// sockets: ranges of one piece of memory. Each shelf has a part of its own.
class SocketsOffering final : public Offering {
 public:
  static absl::StatusOr<std::unique_ptr<Offering>> Create(const Opening& opening,
                                                          const std::string& host) {
    auto offering = std::make_unique<SocketsOffering>(opening);
    absl::StatusOr<std::unique_ptr<BareSocketServer>> server =
        BareSocketServer::Create(host, offering->memory_, FindEngine(opening.engine)->spins());
    if (!server.ok()) return server.status();
    offering->server_ = *std::move(server);
    return offering;
  }
  explicit SocketsOffering(const Opening& opening)
      : share_(opening.largest * opening.batch), memory_(share_ * opening.streams) {}

  absl::StatusOr<std::unique_ptr<Shelf>> NewShelf() override {
    return std::make_unique<RangeShelf>(this, share_ * shelves_.fetch_add(1));
  }

 private:
  class RangeShelf final : public Shelf {
   public:
    RangeShelf(SocketsOffering* offering, uint64_t begin) : offering_(offering), begin_(begin) {}
    void Clear() override {}
    absl::StatusOr<Spans> Stage(uint64_t nbytes, uint64_t count) override {
      if (nbytes * count > offering_->share_ ||
          begin_ + offering_->share_ > offering_->memory_.size()) {
        return MakeError(Reason::kArenaFull, StrCat("no room for ", nbytes * count, " bytes more"));
      }
      ranges_.clear();
      Spans spans;
      for (uint64_t i = 0; i < count; ++i) {
        ranges_.push_back(begin_ + i * nbytes);
        spans.push_back(std::span(offering_->memory_).subspan(ranges_.back(), nbytes));
      }
      return spans;
    }
    absl::StatusOr<std::vector<Offered>> Offer(int64_t) override {
      std::vector<Offered> offered;
      for (const uint64_t range : ranges_) {
        offered.push_back({.descriptor = FormatRange(
                               {.server = offering_->server_->address(), .offset = range})});
      }
      return offered;
    }

   private:
    SocketsOffering* const offering_;
    const uint64_t begin_;
    std::vector<uint64_t> ranges_;
  };

  const uint64_t share_;  // of a shelf
  std::vector<std::byte> memory_;
  std::atomic<uint64_t> shelves_ = 0;
  std::unique_ptr<BareSocketServer> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Offering>> Offering::Create(const Opening& opening,
                                                           const std::string& host) {
  const std::optional<Engine> engine = FindEngine(opening.engine);
  if (!engine) return NoEngine(opening.engine);
  const arena::MemoryLimit memory = arena::FindMemoryLimit({});
  const uint64_t tensors = opening.streams * opening.batch;
  if (tensors == 0 || opening.largest > memory.bytes / tensors) {
    return MakeError(Reason::kNoMemory,
                     StrCat(opening.streams, " streams of ", opening.batch, " tensors of ",
                            opening.largest, " bytes; ", memory.source, " allows ", memory.bytes));
  }
  if (engine->transport == "grpc") return std::make_unique<InlineOffering>(opening.rpc);
  if (engine->transport == "file") return FileOffering::Create();
  if (engine->transport == "sockets") return SocketsOffering::Create(opening, host);
  return LeaseOffering::Create(opening, host);
}

}  // namespace tensorferry::tools::bench
