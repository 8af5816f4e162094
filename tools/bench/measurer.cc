#include "tools/bench/measurer.h"

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <mutex>
#include <thread>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/bench/pattern.h"
#include "tools/bench/usage.h"

namespace tensorferry::tools::bench {
namespace {

// What serves requests waits like this for the next. Whole calls are waited for by gRPC.
constexpr Duration kOfferSpin = std::chrono::microseconds(200);

double Micros(Duration d) { return std::chrono::duration<double, std::micro>(d).count(); }
double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

double PerGib(double seconds, uint64_t bytes) {
  return std::max(0.0, seconds) / (static_cast<double>(bytes) / (uint64_t{1} << 30));
}

}  // namespace

struct Measurer::Sample {
  Instant began, ended;  // both by this process's clock
  Duration gateway = {}, handover = {}, worker = {};
  double fill_cpu = 0;
  double own_cpu = 0;  // of waiting for the offer and of looking at the bytes
  int64_t faults = 0;
};

// Bursts of all streams, in step.
struct Measurer::Phase {
  explicit Phase(size_t streams) : step(static_cast<ptrdiff_t>(streams)), samples(streams) {}

  std::barrier<> step;
  // Set by the first stream before a step, read by all behind it.
  std::atomic<bool> last = false;
  std::atomic<bool> failed = false;
  std::function<bool(uint64_t)> done;
  std::vector<std::vector<Sample>> samples;  // each stream's own
  std::mutex mu;
  absl::Status status;

  void Fail(const absl::Status& failure) {
    const std::lock_guard<std::mutex> lock(mu);
    if (status.ok()) status = failure;
    failed = true;
  }
};

absl::StatusOr<Measurement> Measurer::Measure(const Plan& plan, const Progress& progress) {
  while (fetchers_.size() < plan.streams) {
    absl::StatusOr<std::unique_ptr<Fetcher>> fetcher = fetching_->NewFetcher(fetchers_.size());
    if (!fetcher.ok()) return fetcher.status();
    fetchers_.push_back(*std::move(fetcher));
  }
  Phase warm_up(plan.streams);
  if (absl::Status s = Run(
          plan, plan.warm_up, std::nullopt, [](double) {}, &warm_up);
      !s.ok()) {
    return s;
  }

  ResetPeak(::getpid(), link_->child());
  if (absl::Status s = link_->ResetPeak(); !s.ok()) return s;
  const absl::StatusOr<Link::GatewayUsage> gateway_before = link_->AskUsage();
  if (!gateway_before.ok()) return gateway_before.status();
  const double check_before = fetching_->check_cpu_seconds();
  const absl::StatusOr<Usage> worker_before = UsageOfTree(::getpid(), link_->child());
  if (!worker_before.ok()) return worker_before.status();
  Phase phase(plan.streams);
  if (absl::Status s = Run(plan, plan.count, plan.duration, progress, &phase); !s.ok()) return s;
  const absl::StatusOr<Usage> worker_after = UsageOfTree(::getpid(), link_->child());
  if (!worker_after.ok()) return worker_after.status();
  const absl::StatusOr<Link::GatewayUsage> gateway_after = link_->AskUsage();
  if (!gateway_after.ok()) return gateway_after.status();

  Measurement out;
  out.transport = plan.engine.transport;
  out.clock_error = link_->clock_error();
  std::vector<double> latency, rate, gateway, handover, worker;
  double fill_cpu = 0, own_cpu = fetching_->check_cpu_seconds() - check_before;
  const size_t bursts = phase.samples[0].size();
  for (size_t burst = 0; burst < bursts; ++burst) {
    Instant first = kNever, last = Instant::min();
    for (const std::vector<Sample>& stream : phase.samples) {
      const Sample& sample = stream[burst];
      first = std::min(first, sample.began);
      last = std::max(last, sample.ended);
      latency.push_back(Micros(sample.ended - sample.began));
      gateway.push_back(Micros(sample.gateway));
      handover.push_back(Micros(sample.handover));
      worker.push_back(Micros(sample.worker));
      fill_cpu += sample.fill_cpu;
      own_cpu += sample.own_cpu;
      out.gateway_faults += sample.faults;
    }
    const uint64_t bytes = plan.nbytes * plan.batch * plan.streams;
    out.bytes += bytes;
    rate.push_back(static_cast<double>(bytes) / Seconds(last - first) / 1e9);
  }
  out.latency_us = Summarize(std::move(latency));
  out.gb_per_s = Median(std::move(rate));
  out.gateway_us = Median(std::move(gateway));
  out.handover_us = Median(std::move(handover));
  out.worker_us = Median(std::move(worker));
  out.gateway_cpu_s_per_gib = PerGib(
      gateway_after->usage.cpu_seconds - gateway_before->usage.cpu_seconds - fill_cpu, out.bytes);
  out.worker_cpu_s_per_gib =
      PerGib(worker_after->cpu_seconds - worker_before->cpu_seconds - own_cpu, out.bytes);
  out.gateway_peak_bytes = gateway_after->usage.peak_bytes;
  out.worker_peak_bytes = worker_after->peak_bytes;
  out.arena_bytes_per_tensor = gateway_after->arena_bytes_per_tensor;
  if (plan.idle > Duration::zero()) {
    if (absl::Status s = Idle(plan, &out); !s.ok()) return s;
  }
  return out;
}

absl::Status Measurer::Run(const Plan& plan, uint64_t count, std::optional<Duration> duration,
                           const Progress& progress, Phase* phase) {
  const RealClock clock;
  const Instant began = clock.Now();
  phase->done = [&](uint64_t burst) {
    const double share = duration ? Seconds(clock.Now() - began) / Seconds(*duration)
                                  : static_cast<double>(burst) / static_cast<double>(count);
    progress(share);
    return duration ? share >= 1 : burst >= count;
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < plan.streams; ++i) {
    others.emplace_back(&Measurer::RunStream, this, std::cref(plan), i, phase);
  }
  RunStream(plan, 0, phase);
  for (std::thread& thread : others) thread.join();
  return phase->status;
}

void Measurer::RunStream(const Plan& plan, size_t i, Phase* phase) {
  for (uint64_t burst = 0;; ++burst) {
    if (i == 0 && phase->done(burst)) phase->last = true;
    phase->step.arrive_and_wait();
    if (phase->last || phase->failed) break;
    const int64_t key = next_key_.fetch_add(static_cast<int64_t>(plan.batch));
    const absl::Status asked = Ask(plan, i, key);
    if (!asked.ok()) phase->Fail(asked);
    phase->step.arrive_and_wait();
    if (phase->failed) break;
    absl::StatusOr<Sample> sample = Burst(plan, i, key);
    if (!sample.ok()) {
      phase->Fail(sample.status());
      break;
    }
    phase->samples[i].push_back(*sample);
  }
  fetchers_[i]->Clear();
  phase->step.arrive_and_drop();
}

// Until the tensors are written.
absl::Status Measurer::Ask(const Plan& plan, size_t i, int64_t key) {
  fetchers_[i]->Clear();
  LineStream& stream = link_->stream(i);
  const Request request = {.key = key, .nbytes = plan.nbytes, .count = plan.batch};
  if (absl::Status s = stream.Write(FormatRequest(request)); !s.ok()) return s;
  return AnswerTo("filled", stream.Read(kPatience)).status();
}

absl::StatusOr<std::vector<Offer>> Measurer::ReadOffers(const Plan& plan, size_t i, int64_t key) {
  LineStream& stream = link_->stream(i);
  const RealClock clock;
  const Instant until = clock.Now() + kPatience;
  if (absl::Status s = stream.Write("go"); !s.ok()) return s;
  std::vector<Offer> offers;
  while (offers.size() < plan.batch) {
    absl::StatusOr<std::string> answer =
        stream.Read(kPatience, plan.rpc ? Duration::zero() : kOfferSpin);
    if (!answer.ok()) return answer.status();
    absl::StatusOr<Offer> offer = ParseOffer(*answer);
    if (!offer.ok()) {
      if (ReasonOf(offer.status()) != Reason::kBusy || clock.Now() > until) return offer.status();
      // SMG's exporter looks every 20 ms for slots that are free again, and tells nobody.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (absl::Status s = Ask(plan, i, key); !s.ok()) return s;
      if (absl::Status s = stream.Write("go"); !s.ok()) return s;
      continue;
    }
    offers.push_back(*std::move(offer));
  }
  return offers;
}

absl::StatusOr<Measurer::Sample> Measurer::Burst(const Plan& plan, size_t i, int64_t key) {
  const RealClock clock;
  double cpu = ThreadCpuSeconds();
  const absl::StatusOr<std::vector<Offer>> offers = ReadOffers(plan, i, key);
  const double waiting_cpu = ThreadCpuSeconds() - cpu;
  const Instant read = clock.Now();
  if (!offers.ok()) return offers.status();
  std::optional<Instant> part;
  const absl::StatusOr<std::vector<Fetched>> fetched =
      fetchers_[i]->Fetch(*offers, plan.nbytes, &part);
  const Instant ended = clock.Now();
  if (!fetched.ok()) return fetched.status();

  Sample sample{.began = offers->front().began + link_->clock_offset(),
                .ended = ended,
                .gateway = offers->front().gateway,
                .worker = ended - read};
  for (const Offer& offer : *offers) {
    sample.fill_cpu += offer.fill_cpu;
    sample.faults += offer.faults;
  }
  if (plan.rpc) {
    // Each call is over, and its gateway has timed it.
    sample.gateway = {};
    for (const Offer& offer : *offers) sample.gateway += offer.gateway;
    sample.ended = sample.began + sample.gateway;
    sample.worker = {};
  } else if (part) {
    sample.began = *part;
    sample.gateway = {};
    sample.worker = ended - *part;
  } else {
    sample.handover = read - (sample.began + sample.gateway);
  }
  cpu = ThreadCpuSeconds();
  for (size_t n = 0; n < fetched->size(); ++n) {
    const Fetched& each = (*fetched)[n];
    if (each.transport != plan.engine.transport) {
      return MakeError(Reason::kProtocol,
                       StrCat("bytes that were to go over ", plan.engine.transport, " went over ",
                              each.transport));
    }
    if (plan.rpc) continue;  // the server has looked
    if (each.bytes.size() != plan.nbytes || !IsPattern(key + static_cast<int64_t>(n), each.bytes)) {
      return MakeError(Reason::kChecksum, "other bytes arrived than were sent");
    }
  }
  sample.own_cpu = waiting_cpu + ThreadCpuSeconds() - cpu;
  return sample;
}

absl::Status Measurer::Idle(const Plan& plan, Measurement* out) {
  const absl::StatusOr<Link::GatewayUsage> gateway_before = link_->AskUsage();
  if (!gateway_before.ok()) return gateway_before.status();
  const absl::StatusOr<Usage> worker_before = UsageOfTree(::getpid(), link_->child());
  if (!worker_before.ok()) return worker_before.status();
  const RealClock clock;
  const Instant began = clock.Now();
  std::this_thread::sleep_for(plan.idle);
  const absl::StatusOr<Usage> worker_after = UsageOfTree(::getpid(), link_->child());
  if (!worker_after.ok()) return worker_after.status();
  const absl::StatusOr<Link::GatewayUsage> gateway_after = link_->AskUsage();
  if (!gateway_after.ok()) return gateway_after.status();
  const double seconds = Seconds(clock.Now() - began);
  out->gateway_idle_percent =
      100 * (gateway_after->usage.cpu_seconds - gateway_before->usage.cpu_seconds) / seconds;
  out->worker_idle_percent =
      100 * (worker_after->cpu_seconds - worker_before->cpu_seconds) / seconds;
  return absl::OkStatus();
}

}  // namespace tensorferry::tools::bench
