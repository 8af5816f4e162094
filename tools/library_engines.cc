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
       return ExportLibrary{*std::move(opened), ucx->address(), ucx};
     }},
    {"nixl",
     [](const LibraryOptions& options, const AllowList& allow) -> PullEngine {
       return OpenNixlPull(options.flags.nixl, allow, options.log, options.metrics);
     },
     [](const LibraryOptions& options, const std::string& listen) -> absl::StatusOr<ExportLibrary> {
       auto opened = OpenNixlExport(options.flags.nixl, listen, options.log, options.metrics);
       if (!opened.ok()) return opened.status();
       const SocketAddress address = (*opened)->address();
       return ExportLibrary{*std::move(opened), address};
     }},
});

template <typename End, typename Open>
absl::StatusOr<Libraries<End>> OpenAll(const LibraryOptions& options, const Open& open) {
  Libraries<End> out;
  absl::Status last;
  const auto tell = [&] {
    if (last.ok()) return;
    Log(options.log, LogLevel::kWarning, StrCat(last.message(), " (", ReasonNameOf(last), ")"));
  };
  for (const LibraryEngine& library : LibraryEngines()) {
    if (!Contains(options.transports, library.transport)) continue;
    absl::StatusOr<End> end = open(library);
    if (end.ok()) {
      out.engines.push_back(*std::move(end));
      continue;
    }
    tell();
    last = end.status();
    out.unavailable.emplace(library.transport, std::string(last.message()));
  }
  if (!last.ok() && options.alone && out.engines.empty()) return last;
  tell();
  return out;
}

}  // namespace

std::span<const LibraryEngine> LibraryEngines() { return kEngines; }

bool NeedsLibrary(std::string_view transport) {
  return std::ranges::any_of(
      kEngines, [&](const LibraryEngine& engine) { return engine.transport == transport; });
}

absl::StatusOr<PullLibraries> OpenPullLibraries(const LibraryOptions& options,
                                                const AllowList& allow) {
  return OpenAll<std::unique_ptr<engine::PullEngine>>(
      options, [&](const LibraryEngine& library) { return library.open_pull(options, allow); });
}

absl::StatusOr<ExportLibraries> OpenExportLibraries(const LibraryOptions& options,
                                                    const std::string& listen) {
  return OpenAll<ExportLibrary>(
      options, [&](const LibraryEngine& library) { return library.open_export(options, listen); });
}

}  // namespace tensorferry::tools
