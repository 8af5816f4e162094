#include "tools/serve/engine.h"

namespace tensorferry::tools {

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kAnswered:
      return "answered";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kFailure:
      return "failed";
  }
  return "";
}

void RunningRequests::Add(const std::string& id, const std::shared_ptr<Stoppable>& request) {
  const std::lock_guard<std::mutex> lock(mu_);
  requests_.emplace(id, request);
}

void RunningRequests::Remove(const std::string& id, const Stoppable* request) {
  const std::lock_guard<std::mutex> lock(mu_);
  auto [at, end] = requests_.equal_range(id);
  while (at != end && at->second.get() != request) ++at;
  if (at != end) requests_.erase(at);
}

bool RunningRequests::Stop(const std::string& id) {
  std::vector<std::shared_ptr<Stoppable>> found;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto [begin, end] = requests_.equal_range(id);
    for (auto at = begin; at != end; ++at) found.push_back(at->second);
  }
  for (const auto& request : found) request->Stop();
  return !found.empty();
}

size_t RunningRequests::size() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return requests_.size();
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tensorferry::tools
