// The gateway's process of a benchmark: answers workers as talk.h says, one thread for each stream.
//
//   Gateway gateway("127.0.0.1");
//   gateway.Add(std::move(fd));               // a stream, from now on
//   gateway.Join();                           // until all streams have ended
//
// Whoever reaches it makes it allocate memory: it is for a network that is trusted.
// Thread-safety: Add and Stop from any thread, Join from one.
#ifndef TENSORFERRY_TOOLS_BENCH_GATEWAY_H_
#define TENSORFERRY_TOOLS_BENCH_GATEWAY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tensorferry/base/fd.h"
#include "tools/bench/line_stream.h"
#include "tools/bench/offering.h"

namespace tensorferry::tools::bench {

class Gateway {
 public:
  // `host`: what engines listen on.
  explicit Gateway(std::string host) : host_(std::move(host)) {}
  ~Gateway();

  void Add(UniqueFd stream);
  void Join();
  // Ends every stream.
  void Stop();

 private:
  // What the streams of one worker share.
  struct Session;
  // One stream, from its first line to its end.
  class Talk;

  absl::StatusOr<std::shared_ptr<Session>> Open(std::string_view opening);
  absl::StatusOr<std::shared_ptr<Session>> Find(std::string_view id);

  const std::string host_;
  std::mutex mu_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, std::weak_ptr<Session>> sessions_;
  // Of streams that go on.
  std::vector<int> fds_;  // to be shut down; their threads close them
  std::vector<std::thread> threads_;
  std::vector<std::thread::id> ended_;  // of them, to be joined
};

}  // namespace tensorferry::tools::bench

#endif  // TENSORFERRY_TOOLS_BENCH_GATEWAY_H_
