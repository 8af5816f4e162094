#include "tools/library_engines.h"

#include <array>
#include <utility>

namespace tensorferry::tools {
namespace {

using PullEngine = absl::StatusOr<std::unique_ptr<engine::PullEngine>>;

constexpr std::array kEngines = std::to_array<LibraryEngine>({
    {"ucx",
     [](const EngineFlags& flags, const AllowList& allow, const LogSink& log,
        std::shared_ptr<Metrics> metrics) -> PullEngine {
       return OpenUcxPull(flags.ucx, allow, log, std::move(metrics));
     }},
    {"nixl",
     [](const EngineFlags& flags, const AllowList& allow, const LogSink& log,
        std::shared_ptr<Metrics> metrics) -> PullEngine {
       return OpenNixlPull(flags.nixl, allow, log, std::move(metrics));
     }},
});

}  // namespace

std::span<const LibraryEngine> LibraryEngines() { return kEngines; }

}  // namespace tensorferry::tools
