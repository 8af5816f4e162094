#include "tensorferry/engine/remote_choice.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tensorferry/base/text.h"

namespace tensorferry::engine {

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
  namespace fs = std::filesystem;
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(folder, error)) {
    std::error_code ignored;
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      std::string state;
      std::getline(std::ifstream(port.path() / "state"), state);  // "4: ACTIVE"
      if (!state.starts_with("4:")) continue;
      out.push_back(
          StrCat(device.path().filename().string(), ":", port.path().filename().string()));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tensorferry::engine
