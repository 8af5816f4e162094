#include "tensorferry/grpc/received.h"

#include "tensorferry/v1/transport.pb.h"

namespace tensorferry {

void AddReceived(grpc::ServerContextBase* context, const Received& received) {
  v1::Received message;
  message.set_lane(std::string(LaneName(received.lane)));
  message.set_transport(received.transport);
  message.set_nbytes(received.nbytes);
  message.set_sha256(received.sha256);
  context->AddTrailingMetadata(kReceivedKey, message.SerializeAsString());
}

std::vector<Received> ReadReceived(const grpc::ClientContext& context) {
  std::vector<Received> out;
  const auto [begin, end] = context.GetServerTrailingMetadata().equal_range(kReceivedKey);
  for (auto it = begin; it != end; ++it) {
    v1::Received message;
    if (!message.ParseFromArray(it->second.data(), static_cast<int>(it->second.size()))) continue;
    const auto lane = ParseLane(message.lane());
    if (!lane.ok()) continue;
    out.push_back({.lane = *lane,
                   .transport = message.transport(),
                   .nbytes = message.nbytes(),
                   .sha256 = message.sha256()});
  }
  return out;
}

}  // namespace tensorferry
