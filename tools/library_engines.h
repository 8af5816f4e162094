// The engines of lane remote that need a library of their own, which is looked for at run time.
//
//   LibraryOptions options{.transports = {"tcp", "ucx"}, .alone = false, .flags = flags, .log = log};
//   absl::StatusOr<PullLibraries> opened = OpenPullLibraries(options, allow);
//   for (auto& engine : opened->engines) puller_options.engines.push_back(std::move(engine));
//
// Where one cannot be had the other transports serve all the same, with one line in the log; where it
// was to serve alone, it is an error. Such an engine is a row of the table in library_engines.cc.
// Thread-safety: none. A library is opened by the call, not before.
#ifndef TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_
#define TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/log.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/pull_engine.h"
#include "tensorferry/metrics/metrics.h"
#include "tools/nixl_engines.h"
#include "tools/ucx_engines.h"

namespace tensorferry::tools {

struct EngineFlags {
  NixlFlags nixl = {};
  UcxFlags ucx = {};
};

// The gateway's end of one, and where its readers dial.
struct ExportLibrary {
  std::unique_ptr<engine::ExportEngine> engine;
  SocketAddress address;
  engine::UcxExportEngine* ucx = nullptr;  // the same, where it is that one
};

struct LibraryOptions {
  std::vector<std::string> transports =
      {};              // that are asked for; those without a library do not count
  bool alone = false;  // nothing else carries tensors
  EngineFlags flags = {};
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};
};

struct LibraryEngine {
  std::string_view transport;
  // kLaneOff, in one line, where there is no library.
  absl::StatusOr<std::unique_ptr<engine::PullEngine>> (*open_pull)(const LibraryOptions&,
                                                                   const AllowList&);
  absl::StatusOr<ExportLibrary> (*open_export)(const LibraryOptions&, const std::string& listen);
};

std::span<const LibraryEngine> LibraryEngines();
bool NeedsLibrary(std::string_view transport);

template <typename End>
struct Libraries {
  std::vector<End> engines = {};
  std::map<std::string, std::string> unavailable = {};  // transport to why
};
using PullLibraries = Libraries<std::unique_ptr<engine::PullEngine>>;
using ExportLibraries = Libraries<ExportLibrary>;

// The error of the last one, where none could be had and they were to serve alone.
absl::StatusOr<PullLibraries> OpenPullLibraries(const LibraryOptions& options,
                                                const AllowList& allow);
// `listen`: IP:PORT. Beside tcp, which has that port, ucx takes a free one.
absl::StatusOr<ExportLibraries> OpenExportLibraries(const LibraryOptions& options,
                                                    const std::string& listen);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_
