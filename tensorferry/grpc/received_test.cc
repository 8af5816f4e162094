#include "tensorferry/grpc/received.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensorferry/exporter/exporter_testing.h"
#include "tensorferry/grpc/worker_testing.h"

namespace tensorferry {
namespace {

TEST(Received, KeepsTheOrderAndEveryByte) {
  std::string sha256;
  for (int i = 0; i < 32; ++i) sha256.push_back(static_cast<char>(i * 8));
  const std::vector<Received> sent = {
      {.lane = Lane::kShm, .transport = "local", .nbytes = 9 << 20, .sha256 = sha256},
      {.lane = Lane::kInline, .transport = "grpc", .nbytes = 0},
      {.lane = Lane::kRemote, .transport = "tcp", .nbytes = uint64_t{1} << 40, .sha256 = sha256}};
  TempDir dir;
  TestWorker worker(dir.path() + "/worker", [&](grpc::CallbackServerContext* context,
                                                const EncodeRequest&, TestWorker::Finish finish) {
    AddReceived(context, sent[0]);
    AddReceived(context, sent[1]);
    // What a reader does not understand is skipped.
    context->AddTrailingMetadata(kReceivedKey, "\xff\xff\xff");
    context->AddTrailingMetadata(kReceivedKey, std::string("\x0a\x04warp", 6));
    AddReceived(context, sent[2]);
    finish(grpc::Status::OK);
  });
  worker.Serve(nullptr);
  grpc::ClientContext context;
  ASSERT_TRUE(Encode(worker.channel(), EncodeRequest(), &context).ok());
  EXPECT_THAT(ReadReceived(context), testing::ElementsAreArray(sent));
}

TEST(Received, AWorkerNeedNotSay) {
  TempDir dir;
  TestWorker worker(dir.path() + "/worker",
                    [](grpc::CallbackServerContext*, const EncodeRequest&,
                       TestWorker::Finish finish) { finish(grpc::Status::OK); });
  worker.Serve(nullptr);
  grpc::ClientContext context;
  ASSERT_TRUE(Encode(worker.channel(), EncodeRequest(), &context).ok());
  EXPECT_THAT(ReadReceived(context), testing::IsEmpty());
}

}  // namespace
}  // namespace tensorferry
