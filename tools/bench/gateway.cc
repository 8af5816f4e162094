#include "tools/bench/gateway.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/base/version.h"
#include "tools/bench/pattern.h"
#include "tools/bench/talk.h"
#include "tools/bench/usage.h"

namespace tensorferry::tools::bench {

struct Gateway::Session {
  uint64_t id = 0;
  Opening opening;
  std::unique_ptr<Offering> offering;
  std::atomic<uint64_t> tensors = 0;
};

class Gateway::Talk {
 public:
  Talk(Gateway* gateway, UniqueFd fd) : gateway_(gateway), stream_(std::move(fd)) {}

  void Run() {
    for (;;) {
      const absl::StatusOr<std::string> line = stream_.Read(LineStream::kForEver);
      if (!line.ok()) return;
      absl::Status status = Answer(*line);
      // Told the worker, which knows what it means for it; when that fails, it has gone.
      if (!status.ok()) status = stream_.Write(FormatError(status));
      if (!status.ok()) return;
    }
  }

 private:
  absl::Status Answer(std::string_view line) {
    const std::string_view word = line.substr(0, line.find(' '));
    const std::string_view rest = line.substr(std::min(line.size(), word.size() + 1));
    if (word == "open") return Begin(gateway_->Open(rest));
    if (word == "join") return Begin(gateway_->Find(rest));
    if (word == "clock") {
      return stream_.Write(StrCat("clock ", RealClock().Now().time_since_epoch().count()));
    }
    if (word == "reset") {
      ResetPeak(::getpid(), 0);
      return stream_.Write("reset");
    }
    if (word == "usage") return SayUsage();
    return OfferTensors(line);
  }

  absl::Status Begin(absl::StatusOr<std::shared_ptr<Session>> session) {
    if (!session.ok()) return session.status();
    absl::StatusOr<std::unique_ptr<Shelf>> shelf = (*session)->offering->NewShelf();
    if (!shelf.ok()) return shelf.status();
    shelf_ = *std::move(shelf);
    session_ = *std::move(session);
    return stream_.Write(StrCat("opened ", nlohmann::ordered_json{{"session", session_->id},
                                                                  {"machine", MachineText()},
                                                                  {"version", Version()}}
                                               .dump()));
  }

  absl::Status SayUsage() {
    const absl::StatusOr<Usage> usage = UsageOfTree(::getpid(), 0);
    if (!usage.ok()) return usage.status();
    return stream_.Write(absl::StrFormat("usage %.9f %d %.1f", usage->cpu_seconds,
                                         usage->peak_bytes,
                                         session_ ? session_->offering->ArenaBytesPerTensor() : 0));
  }

  absl::Status OfferTensors(std::string_view line) {
    const absl::StatusOr<Request> request = ParseRequest(line);
    if (!request.ok()) return request.status();
    if (!session_) return MakeError(Reason::kProtocol, "`open` comes first");
    const Opening& opening = session_->opening;
    if (request->nbytes > opening.largest || request->count > opening.batch) {
      return MakeError(Reason::kProtocol,
                       StrCat(request->count, " tensors of ", request->nbytes, " bytes, where ",
                              opening.batch, " of ", opening.largest, " were announced"));
    }
    shelf_->Clear();
    const long faults = ThreadFaults();
    const RealClock clock;
    Instant began = clock.Now();
    const auto spans = shelf_->Stage(request->nbytes, request->count);
    const Duration staging = clock.Now() - began;
    if (!spans.ok()) return spans.status();
    Fill(request->key, *spans);
    if (absl::Status s = stream_.Write("filled"); !s.ok()) return s;
    const absl::StatusOr<std::string> go = stream_.Read(kPatience);
    if (absl::Status s = AnswerTo("go", go).status(); !s.ok()) return s;
    // As if they had been staged just now: only writing the bytes is not counted.
    began = clock.Now() - staging;
    absl::StatusOr<std::vector<Offered>> offered = shelf_->Offer(request->key);
    if (!offered.ok()) return offered.status();
    Offer offer{.gateway = clock.Now() - began,
                .began = began,
                .fill_cpu = std::exchange(fill_cpu_, 0),
                .faults = ThreadFaults() - faults};
    std::string lines;
    for (Offered& each : *offered) {
      offer.descriptor = std::move(each.descriptor);
      offer.transport = std::move(each.transport);
      if (each.call) offer.gateway = *each.call;
      if (!lines.empty()) lines += '\n';
      lines += FormatOffer(offer);
      offer.fill_cpu = 0;
      offer.faults = 0;
    }
    return stream_.Write(lines);
  }

  void Fill(int64_t key, const std::vector<std::span<std::byte>>& spans) {
    const double cpu = ThreadCpuSeconds();
    for (const std::span<std::byte> span : spans) {
      FillPattern(key++, span);
      if (++session_->tensors == session_->opening.corrupt && !span.empty()) {
        span[span.size() / 2] ^= std::byte{1};
      }
    }
    fill_cpu_ += ThreadCpuSeconds() - cpu;
  }

  Gateway* const gateway_;
  LineStream stream_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Shelf> shelf_;
  double fill_cpu_ = 0;
};

Gateway::~Gateway() {
  Stop();
  Join();
}

void Gateway::Add(UniqueFd stream) {
  const std::lock_guard<std::mutex> lock(mu_);
  for (const std::thread::id id : std::exchange(ended_, {})) {
    const auto ended = std::ranges::find(threads_, id, &std::thread::get_id);
    if (ended == threads_.end()) continue;  // Join's
    ended->join();
    threads_.erase(ended);
  }
  const int fd = stream.get();
  fds_.push_back(fd);
  threads_.emplace_back([this, fd, talk = std::make_unique<Talk>(this, std::move(stream))] {
    talk->Run();
    // Before it is closed: from then on the number may be another's.
    const std::lock_guard<std::mutex> own(mu_);
    std::erase(fds_, fd);
    ended_.push_back(std::this_thread::get_id());
  });
}

void Gateway::Join() {
  for (;;) {
    std::vector<std::thread> threads;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      threads.swap(threads_);
    }
    if (threads.empty()) return;
    for (std::thread& thread : threads) thread.join();
  }
}

void Gateway::Stop() {
  const std::lock_guard<std::mutex> lock(mu_);
  for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
}

absl::StatusOr<std::shared_ptr<Gateway::Session>> Gateway::Open(std::string_view opening) {
  absl::StatusOr<Opening> parsed = ParseOpening(opening);
  if (!parsed.ok()) return parsed.status();
  auto session = std::make_shared<Session>();
  session->opening = *std::move(parsed);
  absl::StatusOr<std::unique_ptr<Offering>> offering = Offering::Create(session->opening, host_);
  if (!offering.ok()) return offering.status();
  session->offering = *std::move(offering);
  const std::lock_guard<std::mutex> lock(mu_);
  std::erase_if(sessions_, [](const auto& entry) { return entry.second.expired(); });
  session->id = ++last_id_;
  sessions_[session->id] = session;
  return session;
}

absl::StatusOr<std::shared_ptr<Gateway::Session>> Gateway::Find(std::string_view id) {
  uint64_t number = 0;
  const std::lock_guard<std::mutex> lock(mu_);
  const bool is_number = absl::SimpleAtoi(AbslView(id), &number);
  const auto found = sessions_.find(number);
  if (is_number && found != sessions_.end()) {
    if (auto session = found->second.lock()) return session;
  }
  return MakeError(Reason::kProtocol, StrCat("there is no session ", std::string(id)));
}

}  // namespace tensorferry::tools::bench
