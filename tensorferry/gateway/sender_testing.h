// Workers to send to, for tests.
//
//   auto sent = sender.Attach(lease, WorkerHere(), options, &data);
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_GATEWAY_SENDER_TESTING_H_
#define TENSORFERRY_GATEWAY_SENDER_TESTING_H_

#include "tensorferry/base/host.h"
#include "tensorferry/policy/capabilities.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {

// One on this host that takes everything.
inline Capabilities WorkerHere() {
  return {.lanes = {Lane::kInline, Lane::kShm, Lane::kRemote},
          .transports = {"grpc", "local", "tcp"},
          .landing_bytes = 1 << 30,
          .max_inline_bytes = 64 << 20,
          .host = ThisHost(),
          .descriptor_versions = {wire::kDescriptorVersion},
          .instance_id = "w1"};
}

inline Capabilities WorkerElsewhere() {
  Capabilities out = WorkerHere();
  out.host.boot_id = {9};
  return out;
}

}  // namespace tensorferry

#endif  // TENSORFERRY_GATEWAY_SENDER_TESTING_H_
