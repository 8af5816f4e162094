#include "tensorferry/grpc/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/grpc/worker_testing.h"
#include "tensorferry/v1/transport.pb.h"

namespace tensorferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A worker whose Encode answers what the test says.
class StatusTest : public testing::Test {
 protected:
  void SetUp() override { worker_.Serve(nullptr); }

  // One RPC whose handler ends with FailWith(`error`).
  void Fail(const absl::Status& error, grpc::ClientContext* context, grpc::Status* status) {
    answer_ = [&](grpc::CallbackServerContext* server) { return FailWith(server, error); };
    *status = Encode(channel_, EncodeRequest(), context);
  }

  TempDir dir_;
  std::function<grpc::Status(grpc::CallbackServerContext*)> answer_;
  TestWorker worker_{dir_.path() + "/worker",
                     [this](grpc::CallbackServerContext* context, const EncodeRequest&,
                            TestWorker::Finish finish) { finish(answer_(context)); }};
  std::shared_ptr<grpc::Channel> channel_ = worker_.channel();
};

TEST_F(StatusTest, EveryReasonCrossesAnRpc){
#define TENSORFERRY_X(id, number, name, code, retry, meaning)                      \
  {                                                                                \
    grpc::ClientContext context;                                                   \
    grpc::Status status;                                                           \
    Fail(MakeError(Reason::id, "lease 7: " name), &context, &status);              \
    EXPECT_FALSE(status.ok());                                                     \
    const std::optional<PullFailure> failure = ReadPullFailure(context);           \
    ASSERT_TRUE(failure.has_value()) << name;                                      \
    EXPECT_EQ(failure->reason, Reason::id) << name;                                \
    EXPECT_EQ(failure->message, "lease 7: " name);                                 \
    EXPECT_EQ(failure->retryable, retry) << name;                                  \
    EXPECT_EQ(FromGrpc(status, context), MakeError(Reason::id, "lease 7: " name)); \
  }
    TENSORFERRY_REASONS(TENSORFERRY_X)
#undef TENSORFERRY_X
}

// As Python's servicers say them.
TEST(ReadStockPullFailure, KnowsWhatSmgsWorkersSay) {
  const auto reason = [](grpc::StatusCode code, const char* text) -> std::optional<Reason> {
    const auto failure = ReadStockPullFailure(grpc::Status(code, text));
    return failure ? failure->reason : std::nullopt;
  };
  constexpr auto kBad = grpc::StatusCode::INVALID_ARGUMENT;
  constexpr auto kInternal = grpc::StatusCode::INTERNAL;
  EXPECT_EQ(reason(kBad, "remote descriptor room mismatch: descriptor=7 request=8"),
            Reason::kKeyMismatch);
  EXPECT_EQ(reason(kBad, "remote pixel 9B (+16B gen frame) exceeds landing slot 8B"),
            Reason::kTooLarge);
  EXPECT_EQ(reason(kInternal, "NIXL remote metadata not ready room=7"), Reason::kUnreachable);
  EXPECT_EQ(reason(kInternal, "encode: landing-ring starvation for 120s (room=7); raise ..."),
            Reason::kLandingFull);
  EXPECT_EQ(reason(kInternal, "NIXL READ timed out room=7"), Reason::kTimedOut);
  EXPECT_EQ(reason(kInternal, "NIXL READ state=ERR room=7"), Reason::kPeerClosed);
  EXPECT_EQ(reason(kInternal, "NIXL_ERR_REMOTE_DISCONNECT"), Reason::kPeerClosed);
  EXPECT_EQ(reason(kInternal, "NIXL_ERR_NOT_FOUND"), Reason::kPeerClosed);
  EXPECT_EQ(reason(kBad, "encode: slot generation mismatch room=7 expected=1 header=2 trailer=2"),
            Reason::kBadGeneration);
  EXPECT_EQ(reason(kInternal, "encode: remote payload but landing pool unavailable"),
            Reason::kLaneOff);
  EXPECT_EQ(reason(kInternal, "[Errno 2] No such file or directory: '/dev/shm/smg-tokenspeed-1'"),
            Reason::kOtherHost);
  EXPECT_EQ(reason(kInternal, "[Errno 13] Permission denied: '/dev/shm/smg-tokenspeed-1'"),
            Reason::kUidMismatch);

  EXPECT_EQ(reason(kInternal, "the engine is out of memory"), std::nullopt);
  EXPECT_EQ(reason(grpc::StatusCode::UNAVAILABLE, "NIXL READ timed out room=7"), std::nullopt)
      << "nobody's word about the tensor";
}

TEST(ToGrpc, CodesAreThoseOfSmgsWorkers) {
  const auto code = [](Reason reason) { return ToGrpc(MakeError(reason, "x")).error_code(); };
  for (const Reason reason :
       {Reason::kBadDescriptor, Reason::kTooShort, Reason::kKeyMismatch, Reason::kLegacyNeedsKey,
        Reason::kSizeMismatch, Reason::kBadShape, Reason::kBadGeneration, Reason::kUnknownTransport,
        Reason::kTooLarge, Reason::kNoPayload}) {
    EXPECT_EQ(code(reason), grpc::StatusCode::INVALID_ARGUMENT) << ReasonName(reason);
  }
  for (const Reason reason :
       {Reason::kTimedOut, Reason::kUnreachable, Reason::kPeerClosed, Reason::kLandingFull,
        Reason::kLaneOff, Reason::kLeaseEnded, Reason::kBadToken, Reason::kUnknownDtype,
        Reason::kChecksum, Reason::kNotAllowed, Reason::kSystem}) {
    EXPECT_EQ(code(reason), grpc::StatusCode::INTERNAL) << ReasonName(reason);
  }
  EXPECT_EQ(code(Reason::kCancelled), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(code(Reason::kShutDown), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
}

TEST_F(StatusTest, AStatusWithoutReasonIsNoPullFailure) {
  grpc::ClientContext context;
  grpc::Status status;
  Fail(absl::ResourceExhaustedError("queue is full"), &context, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReadPullFailure(context), std::nullopt);
  EXPECT_EQ(FromGrpc(status, context), absl::ResourceExhaustedError("queue is full"));
}

TEST_F(StatusTest, OkPassesThrough) {
  grpc::ClientContext context;
  grpc::Status status;
  Fail(absl::OkStatus(), &context, &status);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(ReadPullFailure(context), std::nullopt);
  EXPECT_TRUE(FromGrpc(status, context).ok());
}

TEST_F(StatusTest, AReasonOfANewerWorkerKeepsItsRetryability) {
  answer_ = [](grpc::CallbackServerContext* server) {
    v1::TransportError error;
    error.set_reason("solar_flare");
    error.set_message("bits flipped");
    error.set_retryable(true);
    server->AddTrailingMetadata(kErrorKey, error.SerializeAsString());
    return grpc::Status(grpc::StatusCode::INTERNAL, "bits flipped");
  };
  grpc::ClientContext context;
  const grpc::Status status = Encode(channel_, EncodeRequest(), &context);
  const auto failure = ReadPullFailure(context);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->reason, std::nullopt);
  EXPECT_TRUE(failure->retryable);
  EXPECT_EQ(FromGrpc(status, context), absl::InternalError("bits flipped"));
}

TEST_F(StatusTest, GarbageIsNoReport) {
  answer_ = [](grpc::CallbackServerContext* server) {
    server->AddTrailingMetadata(kErrorKey, "\xff\xff\xff");
    return grpc::Status(grpc::StatusCode::INTERNAL, "x");
  };
  grpc::ClientContext context;
  const grpc::Status status = Encode(channel_, EncodeRequest(), &context);
  EXPECT_EQ(ReadPullFailure(context), std::nullopt);
  EXPECT_EQ(FromGrpc(status, context), absl::InternalError("x"));
}

TEST_F(StatusTest, ALongMessageDoesNotBurstTheMetadata) {
  grpc::ClientContext context;
  grpc::Status status;
  Fail(MakeError(Reason::kTimedOut, std::string(100'000, 'x')), &context, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(ReadPullFailure(context)->reason, Reason::kTimedOut);
  EXPECT_EQ(ReadPullFailure(context)->message, std::string(1024, 'x'));
}

TEST_F(StatusTest, AWorkerThatIsNotThereReportsNothing) {
  worker_.Stop();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(100));
  const grpc::Status status = Encode(worker_.channel(), EncodeRequest(), &context);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(ReadPullFailure(context), std::nullopt);
  EXPECT_EQ(ReasonOf(FromGrpc(status, context)), std::nullopt);
}

TEST_F(StatusTest, RemainingTimeIsThatOfTheRpc) {
  std::optional<Duration> remaining;
  answer_ = [&](grpc::CallbackServerContext* server) {
    remaining = RemainingTime(*server);
    return grpc::Status::OK;
  };
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  EXPECT_TRUE(Encode(channel_, EncodeRequest(), &context).ok());
  ASSERT_TRUE(remaining.has_value());
  EXPECT_GT(*remaining, Duration::zero());
  EXPECT_LE(*remaining, Duration(seconds(21)));

  grpc::ClientContext patient;
  EncodeResponse response;
  EXPECT_TRUE(
      TokenSpeedEncoder::NewStub(channel_)->Encode(&patient, EncodeRequest(), &response).ok());
  EXPECT_EQ(remaining, std::nullopt);
}

}  // namespace
}  // namespace tensorferry
