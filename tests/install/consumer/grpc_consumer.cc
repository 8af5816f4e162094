// Turns an error of the library into one of gRPC.
#include <iostream>

#include "tensorferry/base/error.h"
#include "tensorferry/grpc/status.h"

int main() {
  const grpc::Status status = tensorferry::ToGrpc(
      tensorferry::MakeError(tensorferry::Reason::kBadShape, "too many dimensions"));
  std::cout << status.error_code() << ' ' << status.error_message() << '\n';
  return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ? 0 : 1;
}
