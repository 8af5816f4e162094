// Capabilities to and from their message. Not installed: the generated message stays inside.
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_GRPC_CAPABILITIES_PROTO_H_
#define TENSORFERRY_GRPC_CAPABILITIES_PROTO_H_

#include "tensorferry/policy/capabilities.h"
#include "tensorferry/v1/transport.pb.h"

namespace tensorferry {

v1::Capabilities ToProto(const Capabilities& capabilities);
// Lanes that are not known here are skipped: a newer worker may offer more. An absent list leaves
// the default.
Capabilities FromProto(const v1::Capabilities& message);

}  // namespace tensorferry

#endif  // TENSORFERRY_GRPC_CAPABILITIES_PROTO_H_
