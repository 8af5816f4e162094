#include "tensorferry/engine/remote_choice.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tensorferry/base/text.h"

namespace tensorferry::engine {
namespace {

namespace fs = std::filesystem;

// None of a folder that is not there, or goes meanwhile.
std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    out.push_back(at->path());
  }
  return out;
}

}  // namespace

RemoteEnd RemoteEndOf(std::span<const std::string> transports) {
  RemoteEnd end;
  for (const std::string& name : transports) {
    if (name == "ucx") {
      end.ucx = true;
      end.rdma = !end.tcp;
    }
    if (name == "tcp") end.tcp = true;
  }
  // Alone it stands before nothing.
  if (!end.tcp) end.rdma = false;
  return end;
}

RemoteChoice ChooseRemote(const RemoteEnd& gateway, const RemoteEnd& worker) {
  const bool tcp = gateway.tcp && worker.tcp;
  const bool ucx = gateway.ucx && worker.ucx;
  if (!tcp && !ucx) return {"", "the two ends have neither tcp nor ucx in common"};
  if (!tcp) return {"ucx", "the two ends have no other in common"};
  const auto lacks = [&](bool at_gateway, bool at_worker, std::string_view what) {
    const std::string_view who = at_gateway || at_worker
                                     ? (at_gateway ? "the worker has " : "the gateway has ")
                                     : "neither end has ";
    return StrCat(who, what);
  };
  if (!gateway.rdma || !worker.rdma) {
    const std::string_view what =
        gateway.rdma || worker.rdma ? "no active RDMA device" : "an active RDMA device";
    return {"tcp", lacks(gateway.rdma, worker.rdma, what)};
  }
  if (!ucx) {
    const std::string_view what = gateway.ucx || worker.ucx ? "no ucx" : "ucx";
    return {"tcp", StrCat(lacks(gateway.ucx, worker.ucx, what), ", though both have RDMA devices")};
  }
  return {"ucx", "both ends have an active RDMA device"};
}

std::vector<std::string> ActiveRdmaDevices(const std::string& folder) {
  std::vector<std::string> out;
  for (const fs::path& device : Entries(folder)) {
    for (const fs::path& port : Entries(device / "ports")) {
      std::string state;
      std::getline(std::ifstream(port / "state"), state);  // "4: ACTIVE"
      if (!state.starts_with("4:")) continue;
      out.push_back(StrCat(device.filename().string(), ":", port.filename().string()));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tensorferry::engine
