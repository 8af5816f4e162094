#include "tools/worker_facts.h"

#include <netdb.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tensorferry/base/error.h"
#include "tensorferry/base/socket_owner.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

using Json = nlohmann::ordered_json;

// Takes one key after the other out of an object, and knows what went wrong first.
class Reader {
 public:
  Reader(Json object, std::string path) : object_(std::move(object)), path_(std::move(path)) {}

  void Number(const char* key, uint64_t most, const auto& set) {
    Take(key, StrCat("a whole number, up to ", most), [&](const Json& value) {
      if (!value.is_number_unsigned() || value.get<uint64_t>() > most) return false;
      set(value.get<uint64_t>());
      return true;
    });
  }
  void Text(const char* key, const auto& set) {
    Take(key, "a text", [&](const Json& value) {
      if (value.is_string()) set(value.get<std::string>());
      return value.is_string();
    });
  }
  // `parse` gives the element, or none for what is no such.
  template <class Element>
  void List(const char* key, const std::string& form, std::vector<Element>* out,
            const auto& parse) {
    Take(key, form, [&](const Json& value) {
      if (!value.is_array()) return false;
      out->clear();
      for (const Json& element : value) {
        const std::optional<Element> parsed = parse(element);
        if (!parsed) return false;
        out->push_back(*parsed);
      }
      return true;
    });
  }
  void Take(const char* key, const std::string& form, const auto& use) {
    const auto at = object_.find(key);
    if (at == object_.end()) return;
    const Json value = *at;
    object_.erase(key);
    if (status_.ok() && !use(value)) {
      status_ = MakeError(Reason::kBadOption,
                          StrCat(path_, key, " is ", value.dump().substr(0, 80), ": give ", form));
    }
  }
  // Also refuses what nobody took.
  absl::Status Finish() const {
    if (!status_.ok() || object_.empty()) return status_;
    return MakeError(Reason::kBadOption, StrCat("there is no key ", path_, object_.begin().key()));
  }

 private:
  Json object_;
  std::string path_;
  absl::Status status_;
};

absl::Status ReadHost(const Json& object, HostIdentity* host) {
  Reader reader(object, "host.");
  reader.Take("boot_id", "a boot id as in /proc/sys/kernel/random/boot_id", [&](const Json& value) {
    if (value.is_string()) host->boot_id = ParseBootId(value.get<std::string>());
    return host->boot_id != BootId{};
  });
  reader.Number("uid", UINT32_MAX, [&](uint64_t v) { host->uid = static_cast<uint32_t>(v); });
  reader.Text("shm_namespace", [&](std::string v) { host->shm_namespace = std::move(v); });
  return reader.Finish();
}

}  // namespace

absl::StatusOr<SocketAddress> Resolve(const std::string& text, std::string_view flag) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) {
    return MakeError(Reason::kBadAddress, StrCat(flag, " \"", text, "\" is not HOST:PORT"));
  }
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found)) {
    return MakeError(Reason::kBadAddress, StrCat(flag, " \"", text, "\": ", ::gai_strerror(error)));
  }
  sockaddr_storage storage{};
  std::copy_n(reinterpret_cast<const char*>(found->ai_addr), found->ai_addrlen,
              reinterpret_cast<char*>(&storage));
  ::freeaddrinfo(found);
  return SocketAddress::FromSockaddr(storage);
}

Capabilities WithListeningUid(Capabilities worker, const SocketAddress& address) {
  worker.host.uid = ListeningUid(address);
  return worker;
}

absl::StatusOr<WorkerInfo> ParseWorkerInfo(std::string_view json) {
  Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return MakeError(Reason::kBadOption, "is no JSON object");
  WorkerInfo out;
  Capabilities& worker = out.capabilities;
  Reader reader(std::move(object), "");
  reader.List("lanes", "a list of inline, shm and remote", &worker.lanes,
              [](const Json& v) -> std::optional<Lane> {
                if (!v.is_string()) return std::nullopt;
                const absl::StatusOr<Lane> lane = ParseLane(v.get<std::string>());
                return lane.ok() ? std::optional(*lane) : std::nullopt;
              });
  reader.List("transports", "a list of grpc, local, file, tcp, ucx and nixl", &worker.transports,
              [](const Json& v) -> std::optional<std::string> {
                if (!v.is_string() || !LaneOfTransport(v.get<std::string>())) return std::nullopt;
                return v.get<std::string>();
              });
  reader.Number("landing_bytes", UINT64_MAX, [&](uint64_t v) { worker.landing_bytes = v; });
  reader.Number("max_inline_bytes", UINT64_MAX, [&](uint64_t v) { worker.max_inline_bytes = v; });
  reader.List("descriptor_versions", "a list of numbers", &worker.descriptor_versions,
              [](const Json& v) -> std::optional<uint32_t> {
                if (!v.is_number_unsigned() || v.get<uint64_t>() > UINT32_MAX) return std::nullopt;
                return v.get<uint32_t>();
              });
  if (!worker.descriptor_versions.empty()) worker.instance_id = "described";
  reader.Text("instance_id", [&](std::string v) { worker.instance_id = std::move(v); });
  reader.Text("version", [&](std::string v) { worker.version = std::move(v); });
  absl::Status host = absl::OkStatus();
  reader.Take("host", "an object", [&](const Json& value) {
    if (value.is_object()) host = ReadHost(value, &worker.host);
    return value.is_object();
  });
  if (!host.ok()) return host;
  reader.Text("multimodal_tensor_transport",
              [&](std::string v) { out.overrides.multimodal_tensor_transport = std::move(v); });
  reader.Take("multimodal_shm_min_bytes", "a whole number or a text", [&](const Json& value) {
    if (value.is_string()) {
      out.overrides.multimodal_shm_min_bytes = value.get<std::string>();
    } else if (value.is_number()) {
      out.overrides.multimodal_shm_min_bytes = value.dump();
    }
    return value.is_string() || value.is_number();
  });
  if (absl::Status s = reader.Finish(); !s.ok()) return s;
  return out;
}

}  // namespace tensorferry::tools
