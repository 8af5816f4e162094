#include "tools/library_engines.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

using PullEngine = absl::StatusOr<std::unique_ptr<engine::PullEngine>>;

constexpr std::array kEngines = std::to_array<LibraryEngine>({
    {"ucx",
     [](const LibraryOptions& options, const AllowList& allow) -> PullEngine {
       return OpenUcxPull(options.flags.ucx, allow, options.log, options.metrics);
     },
     [](const LibraryOptions& options, const std::string& listen) -> absl::StatusOr<ExportLibrary> {
       auto opened = OpenUcxExport(options.flags.ucx, listen, Contains(options.transports, "tcp"),
                                   options.log, options.metrics);
       if (!opened.ok()) return opened.status();
       engine::UcxExportEngine* const ucx = opened->get();
       return ExportLibrary{"ucx", *std::move(opened), ucx->address(), ucx};
     }},
    {"nixl",
     [](const LibraryOptions& options, const AllowList& allow) -> PullEngine {
       return OpenNixlPull(options.flags.nixl, allow, options.log, options.metrics);
     },
     [](const LibraryOptions& options, const std::string& listen) -> absl::StatusOr<ExportLibrary> {
       auto opened = OpenNixlExport(options.flags.nixl, listen, options.log, options.metrics);
       if (!opened.ok()) return opened.status();
       const SocketAddress address = (*opened)->address();
       return ExportLibrary{"nixl", *std::move(opened), address};
     }},
});

template <typename End, typename Open>
std::vector<End> OpenAll(const LibraryOptions& options, Unavailable* unavailable,
                         const Open& open) {
  std::vector<End> out;
  for (const LibraryEngine& library : LibraryEngines()) {
    if (!Contains(options.transports, library.transport)) continue;
    absl::StatusOr<End> end = open(library);
    if (end.ok()) {
      out.push_back(*std::move(end));
    } else {
      unavailable->Add(library.transport, end.status());
    }
  }
  return out;
}

}  // namespace

std::span<const LibraryEngine> LibraryEngines() { return kEngines; }

bool NeedsLibrary(std::string_view transport) {
  return std::ranges::any_of(
      kEngines, [&](const LibraryEngine& engine) { return engine.transport == transport; });
}

void Unavailable::Add(std::string_view transport, const absl::Status& why) {
  Tell();
  last_ = why;
  reasons_.emplace(transport, std::string(why.message()));
}

absl::Status Unavailable::Settle(bool none_left) {
  if (!none_left) Tell();
  const absl::Status last = std::exchange(last_, absl::OkStatus());
  return none_left ? last : absl::OkStatus();
}

void Unavailable::Tell() const {
  if (last_.ok()) return;
  Log(log_, LogLevel::kWarning, StrCat(last_.message(), " (", ReasonNameOf(last_), ")"));
}

std::vector<std::unique_ptr<engine::PullEngine>> OpenPullLibraries(const LibraryOptions& options,
                                                                   const AllowList& allow,
                                                                   Unavailable* unavailable) {
  return OpenAll<std::unique_ptr<engine::PullEngine>>(
      options, unavailable,
      [&](const LibraryEngine& library) { return library.open_pull(options, allow); });
}

std::vector<ExportLibrary> OpenExportLibraries(const LibraryOptions& options,
                                               const std::string& listen,
                                               Unavailable* unavailable) {
  return OpenAll<ExportLibrary>(options, unavailable, [&](const LibraryEngine& library) {
    return library.open_export(options, listen);
  });
}

}  // namespace tensorferry::tools
