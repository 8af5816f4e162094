// The engines of lane remote that need a library of their own, which is looked for at run time.
//
//   Unavailable unavailable(log);
//   for (auto& engine : OpenPullLibraries(options, allow, &unavailable)) engines.push_back(...);
//   if (absl::Status s = unavailable.Settle(/*none_left=*/engines.empty() && !tcp); !s.ok()) return s;
//
// Where one cannot be had the other transports serve all the same, with one line in the log; where
// none is left, it is an error. Such an engine is a row of the table in library_engines.cc.
// Thread-safety: none. A library is opened by the call, not before.
#ifndef TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_
#define TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
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

struct LibraryOptions {
  std::vector<std::string> transports =
      {};  // that are asked for; those without a library do not count
  EngineFlags flags = {};
  LogSink log = {};
  std::shared_ptr<Metrics> metrics = {};
};

// The gateway's end of one, and where its readers dial.
struct ExportLibrary {
  std::string_view transport;
  std::unique_ptr<engine::ExportEngine> engine;
  SocketAddress address;
  engine::UcxExportEngine* ucx = nullptr;  // the same, where it is that one
};

struct LibraryEngine {
  std::string_view transport;
  // kLaneOff, in one line, where there is no library. An exporter's may be missed when it starts.
  absl::StatusOr<std::unique_ptr<engine::PullEngine>> (*open_pull)(const LibraryOptions&,
                                                                   const AllowList&);
  absl::StatusOr<ExportLibrary> (*open_export)(const LibraryOptions&, const std::string& listen);
};

std::span<const LibraryEngine> LibraryEngines();
bool NeedsLibrary(std::string_view transport);

// Engines that were asked for and could not be had: each is told of once.
class Unavailable {
 public:
  explicit Unavailable(LogSink log) : log_(std::move(log)) {}

  void Add(std::string_view transport, const absl::Status& why);
  // When all is known: the last one is the error where nothing else is left, and else a line in the
  // log, as those before it.
  absl::Status Settle(bool none_left);
  // Transport to why.
  const std::map<std::string, std::string>& reasons() const { return reasons_; }

 private:
  void Tell() const;
  const LogSink log_;
  absl::Status last_;
  std::map<std::string, std::string> reasons_;
};

std::vector<std::unique_ptr<engine::PullEngine>> OpenPullLibraries(const LibraryOptions& options,
                                                                   const AllowList& allow,
                                                                   Unavailable* unavailable);
// `listen`: IP:PORT. Beside tcp, which has that port, ucx takes a free one.
std::vector<ExportLibrary> OpenExportLibraries(const LibraryOptions& options,
                                               const std::string& listen, Unavailable* unavailable);

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_LIBRARY_ENGINES_H_
