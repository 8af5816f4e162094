// A few threads for work that must not be done where it comes up: hashing and saving tensors, which
// a callback of the puller or of gRPC would block with.
//
//   WorkQueue queue(2);
//   queue.Add([=] { ... });
//
// Thread-safety: Add from any thread. The destructor finishes what was added, then joins.
#ifndef TENSORFERRY_TOOLS_WORK_QUEUE_H_
#define TENSORFERRY_TOOLS_WORK_QUEUE_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tensorferry::tools {

class WorkQueue {
 public:
  explicit WorkQueue(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~WorkQueue() {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      closing_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Add(std::function<void()> work) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !work_.empty(); });
      if (work_.empty()) return;
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_WORK_QUEUE_H_
