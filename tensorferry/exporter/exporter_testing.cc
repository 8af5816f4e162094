#include "tensorferry/exporter/exporter_testing.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "tensorferry/wire/bytes.h"

namespace tensorferry {

std::vector<std::byte> Pattern(size_t nbytes, uint64_t seed) {
  std::vector<std::byte> out(nbytes);
  uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (std::byte& b : out) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    b = static_cast<std::byte>(x >> 32);
  }
  return out;
}

ExporterForTest::ExporterForTest(const Adjust& adjust) : adjust_(adjust) { Create("127.0.0.1:0"); }

void ExporterForTest::Create(std::string listen) {
  ExporterOptions options;
  options.arena_bytes = 8 << 20;
  options.listen = std::move(listen);
  options.local_socket = dir_ / "gateway.sock";
  if (adjust_) adjust_(&options);
  absl::StatusOr<std::unique_ptr<Exporter>> created = Exporter::Create(std::move(options));
  if (!created.ok()) {
    ADD_FAILURE() << created.status();
    std::abort();
  }
  exporter_ = *std::move(created);
}

void ExporterForTest::Restart() {
  std::string listen = exporter_->listen_address();
  exporter_.reset();
  Create(std::move(listen));
}

ExporterForTest::Adjust OneSidedEngine::Into(OneSidedEngine** self) {
  return [self](ExporterOptions* options) {
    auto engine = std::make_unique<OneSidedEngine>();
    *self = engine.get();
    options->engines.push_back(std::move(engine));
  };
}

absl::Status OneSidedEngine::Start(const engine::ArenaView& view, engine::LeaseSource* source) {
  arena = view;
  leases = source;
  return absl::OkStatus();
}

wire::Way OneSidedEngine::way() const {
  return wire::SmgDescriptor{
      .slot_addr = reinterpret_cast<uintptr_t>(arena.data), .port = 7, .host = "127.0.0.1"};
}

bool OneSidedEngine::Retire(const wire::LeaseRef& ref) {
  retired.push_back(ref.generation);
  return true;
}

uint64_t OneSidedEngine::StampAt(uint64_t address) const {
  return wire::LoadLe<uint64_t>(reinterpret_cast<const std::byte*>(address));
}

Handle HandleOf(const Lease& lease, Lease::Ways ways) {
  absl::StatusOr<std::string> descriptor = lease.Descriptor(ways);
  EXPECT_TRUE(descriptor.ok()) << descriptor.status();
  if (!descriptor.ok()) return {};
  return {.transport = "tensorferry", .descriptor = *descriptor, .nbytes = lease.bytes().size()};
}

}  // namespace tensorferry
