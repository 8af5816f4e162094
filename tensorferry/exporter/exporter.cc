#include "tensorferry/exporter/exporter.h"

#include <cstring>
#include <utility>

#include "tensorferry/exporter/exporter_core.h"

namespace tensorferry {

Lease::Lease() = default;
Lease::Lease(std::unique_ptr<State> state) : state_(std::move(state)) {}
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    Lease old(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}
Lease::~Lease() {
  if (state_ && state_->id) state_->core->Drop(*state_->id);
}

std::span<const std::byte> Lease::bytes() const {
  return state_ ? state_->bytes : std::span<const std::byte>();
}
int64_t Lease::key() const { return state_ ? state_->key : 0; }
const absl::Status& Lease::exported() const {
  static const absl::Status kEmpty(absl::StatusCode::kFailedPrecondition, "an empty Lease");
  return state_ ? state_->exported : kEmpty;
}

absl::StatusOr<std::string> Lease::Descriptor(Ways ways) const {
  if (!exported().ok()) return exported();
  return state_->core->EncodeDescriptor(*state_, ways);
}

absl::StatusOr<std::string> Lease::SmgDescriptor() const {
  if (!exported().ok()) return exported();
  return state_->core->EncodeSmgDescriptor(*state_);
}

std::vector<std::string> Lease::transports() const {
  return exported().ok() ? state_->core->TransportsOf(*state_) : std::vector<std::string>();
}

void Lease::ReadersAreDone() {
  if (state_ && state_->id && state_->exported.ok()) state_->core->ReadersAreDone(*state_->id);
}

void Lease::Detach() && {
  if (!state_ || !state_->id) return;
  state_->core->Detach(*state_->id);
  state_.reset();
}

Staged::Staged() = default;
Staged::Staged(std::unique_ptr<State> state) : state_(std::move(state)) {}
Staged::Staged(Staged&&) noexcept = default;
Staged& Staged::operator=(Staged&& other) noexcept {
  if (this != &other) {
    Staged old(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}
Staged::~Staged() {
  if (state_ && state_->block) state_->core->Drop(state_->block->id);
}

std::span<std::byte> Staged::bytes() { return state_ ? state_->bytes : std::span<std::byte>(); }
bool Staged::in_arena() const { return state_ && state_->block.has_value(); }

Lease Staged::Publish(const PublishOptions& options) && {
  if (!state_) return Lease();
  const std::shared_ptr<ExporterCore> core = state_->core;
  return core->Publish(std::move(state_), options);
}

absl::StatusOr<std::unique_ptr<Exporter>> Exporter::Create(ExporterOptions options) {
  absl::StatusOr<std::shared_ptr<ExporterCore>> core = ExporterCore::Create(std::move(options));
  if (!core.ok()) return core.status();
  return std::unique_ptr<Exporter>(new Exporter(*std::move(core)));
}

Exporter::Exporter(std::shared_ptr<ExporterCore> core) : core_(std::move(core)) {}
Exporter::~Exporter() { Close(); }

Staged Exporter::Stage(uint64_t nbytes) { return core_->Stage(nbytes); }

Lease Exporter::Export(std::span<const std::byte> bytes, const PublishOptions& options) {
  Staged staged = Stage(bytes.size());
  if (!bytes.empty() && staged.bytes().size() == bytes.size()) {
    std::memcpy(staged.bytes().data(), bytes.data(), bytes.size());
  }
  return std::move(staged).Publish(options);
}

absl::Status Exporter::Cancel(int64_t key) { return core_->Cancel(key); }
absl::Status Exporter::Drain(Duration timeout) { return core_->Drain(timeout); }
void Exporter::Close() { core_->Close(); }
void Exporter::WaitPrefaulted() const { core_->WaitPrefaulted(); }
const wire::InstanceId& Exporter::instance() const { return core_->instance(); }
std::vector<std::string> Exporter::transports() const { return core_->transports(); }
std::vector<EngineState> Exporter::engines() const { return core_->engines(); }
std::vector<std::string> Exporter::starting() const { return core_->starting(); }
absl::Status Exporter::WaitStarted(Duration timeout) const { return core_->WaitStarted(timeout); }
std::string Exporter::listen_address() const { return core_->listen_address(); }
ExporterStats Exporter::stats() const { return core_->stats(); }
uint64_t Exporter::smg_epoch() const { return core_->smg_epoch(); }

}  // namespace tensorferry
