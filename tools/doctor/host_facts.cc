#include "tools/doctor/host_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tensorferry/arena/memory_limit.h"
#include "tensorferry/base/contains.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/file/shm_name.h"
#include "tensorferry/engine/local/unix_socket.h"
#include "tensorferry/engine/remote_choice.h"
#include "tensorferry/exporter/exporter.h"

namespace tensorferry::tools {
namespace {

namespace fs = std::filesystem;

std::string Line(const fs::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

std::optional<uint64_t> Number(const fs::path& file) {
  uint64_t number = 0;
  return absl::SimpleAtoi(Line(file), &number) ? std::optional(number) : std::nullopt;
}

std::optional<uint64_t> Limit(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

void ReadShm(const std::string& root, HostFacts* facts) {
  const std::string folder = StrCat(root, engine::kShmDirectory);
  struct statvfs space {};
  if (::access(folder.c_str(), W_OK | X_OK) != 0 || ::statvfs(folder.c_str(), &space) != 0) {
    facts->dev_shm = SystemError(errno, folder);
    return;
  }
  facts->dev_shm_bytes = space.f_blocks * space.f_frsize;
  facts->dev_shm_free_bytes = space.f_bavail * space.f_frsize;
}

void ReadMemory(HostFacts* facts) {
  facts->memfd = Exporter::Create({.arena_bytes = uint64_t{1} << 20, .prefault = false}).status();
  const arena::MemoryLimit memory = arena::FindMemoryLimit({});
  facts->memory_bytes = memory.bytes;
  facts->memory_limit = memory.source;
  const std::optional<uint64_t> address_space = Limit(RLIMIT_AS);
  if (address_space && *address_space < facts->memory_bytes) {
    facts->memory_bytes = *address_space;
    facts->memory_limit = "RLIMIT_AS (ulimit -v)";
  }
}

// The verbs device of each RDMA device is found by the other's name.
void AddVerbs(const std::string& root, RdmaPort* port, const std::string& device) {
  for (const fs::path& verbs : Entries(root + "/sys/class/infiniband_verbs")) {
    if (Line(verbs / "ibdev") != device) continue;
    port->verbs = "/dev/infiniband/" + verbs.filename().string();
    port->accessible = ::access((root + port->verbs).c_str(), R_OK | W_OK) == 0;
  }
}

std::vector<RdmaPort> ReadRdma(const std::string& root, const std::string& folder) {
  const std::vector<std::string> active = engine::ActiveRdmaDevices(root + folder);
  std::vector<RdmaPort> out;
  for (const fs::path& device : Entries(root + folder)) {
    for (const fs::path& port : Entries(device / "ports")) {
      const std::string name = device.filename().string();
      RdmaPort found{.name = StrCat(name, ":", port.filename().string())};
      const std::string state = Line(port / "state");
      found.active = Contains(active, found.name);
      found.detail = StrCat(state, ", ", Line(port / "link_layer"), ", ", Line(port / "rate"));
      AddVerbs(root, &found, name);
      out.push_back(std::move(found));
    }
  }
  return out;
}

// UCX loads drivers, so it is asked in a process of its own, which may take no longer than this.
std::string AskUcx() {
  struct Close {
    void operator()(FILE* pipe) const { (void)::pclose(pipe); }
  };
  const std::unique_ptr<FILE, Close> pipe(
      ::popen("timeout 10 ucx_info -e -u r -D net 2>/dev/null", "re"));
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> part{};
  for (size_t n = 1; n > 0;) {
    n = std::fread(part.data(), 1, part.size(), pipe.get());
    text.append(part.data(), n);
  }
  return ParseUcxLane(text);
}

}  // namespace

std::string ParseUcxLane(std::string_view text) {
  // "#                 lane[0]:  0:rc_mlx5/mlx5_0:1.0 md[0]   -> md[0]/ib/sysdev[0] rma_bw#0 …"
  for (const absl::string_view line : absl::StrSplit(AbslView(text), '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (!absl::StartsWith(words[i], "lane[")) continue;
      // Behind the number of the resource, before that of the path. That by which two ends have met
      // ("cm rdmacm") is none that carries.
      const absl::string_view name = words[i + 1];
      const size_t colon = name.find(':');
      const size_t dot = name.rfind('.');
      if (colon == absl::string_view::npos || dot == absl::string_view::npos || dot < colon) break;
      return std::string(name.substr(colon + 1, dot - colon - 1));
    }
  }
  return "";
}

HostFacts ReadHostFacts(const HostFactsOptions& options) {
  const std::string& root = options.root;
  HostFacts facts{.identity = ThisHost(),
                  .sees_any_pid_namespace = engine::SeesPeersOfAnyPidNamespace()};
  const std::string map = Line(root + "/proc/self/uid_map");
  const std::vector<std::string> uids =
      absl::StrSplit(map, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  facts.own_uids =
      uids.size() != 3 || (uids[0] == "0" && uids[1] == "0" && uids[2] == "4294967295");
  ReadShm(root, &facts);
  ReadMemory(&facts);
  facts.memlock_bytes = Limit(RLIMIT_MEMLOCK);
  facts.open_files = Limit(RLIMIT_NOFILE);
  facts.max_map_count = Number(root + "/proc/sys/vm/max_map_count");
  facts.ptrace_scope = Number(root + "/proc/sys/kernel/yama/ptrace_scope");
  facts.rdma = ReadRdma(root, options.rdma_devices);
  if (options.ask_ucx) facts.ucx_choice = AskUcx();
  return facts;
}

}  // namespace tensorferry::tools
