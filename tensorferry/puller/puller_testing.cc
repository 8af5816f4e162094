#include "tensorferry/puller/puller_testing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>

namespace tensorferry {

PullOptions PatientOptions() { return {.timeout = std::chrono::seconds(60)}; }

std::unique_ptr<Puller> MakePuller(const std::function<void(PullerOptions*)>& adjust) {
  PullerOptions options;
  options.landing_bytes = 8 << 20;
  options.prefault = false;
  if (adjust) adjust(&options);
  absl::StatusOr<std::unique_ptr<Puller>> puller = Puller::Create(std::move(options));
  EXPECT_TRUE(puller.ok()) << puller.status();
  return *std::move(puller);
}

std::unique_ptr<Puller> FaultyPuller(const std::string& transport, const engine::PullFaults& plan) {
  return MakePuller([&](PullerOptions* o) {
    o->wrap = [=](std::unique_ptr<engine::PullEngine> inner) {
      if (inner->transport() != transport) return inner;
      return WrapInFaults(std::move(inner), plan);
    };
  });
}

engine::Fault Failing(Reason reason) {
  return {.kind = engine::Fault::Kind::kFail, .reason = reason};
}

}  // namespace tensorferry
