#include "tensorferry/worker/describe.h"

#include <algorithm>

#include "tensorferry/base/random.h"
#include "tensorferry/base/version.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {

Capabilities DescribeWorker(const Puller* puller, uint64_t max_message_bytes) {
  Capabilities out;
  out.max_inline_bytes = max_message_bytes;
  out.host = ThisHost();
  out.descriptor_versions = {wire::kDescriptorVersion};
  RandomSource random;
  const auto id = random.Bytes<16>();
  out.instance_id.assign(id.begin(), id.end());
  out.version = Version();
  if (puller == nullptr) return out;

  out.landing_bytes = puller->stats().landing_bytes;
  for (const std::string& transport : puller->transports()) {
    const auto lane = LaneOfTransport(transport);
    if (!lane) continue;
    // What is copied needs landing memory.
    if ((*lane == Lane::kRemote || transport == "file") && out.landing_bytes == 0) continue;
    out.transports.push_back(transport);
    if (std::find(out.lanes.begin(), out.lanes.end(), *lane) == out.lanes.end()) {
      out.lanes.push_back(*lane);
    }
  }
  return out;
}

}  // namespace tensorferry
