#include "tensorferry/arena/tombstones.h"

#include <algorithm>

namespace tensorferry::arena {

void Tombstones::Add(int64_t key, uint32_t awaited) {
  if (max_ == 0) return;
  // Counts the taken ones too: it is stones_ whose memory is bounded.
  if (stones_.size() >= max_) DropOldest();
  stones_.push_back({.key = key, .number = next_number_, .expires = kNever});
  ++undated_;
  awaited_.emplace(std::pair(key, next_number_), awaited);
  ++next_number_;
}

bool Tombstones::Take(int64_t key) {
  const auto oldest = awaited_.lower_bound({key, 0});
  if (oldest == awaited_.end() || oldest->first.first != key) return false;
  if (--oldest->second == 0) {
    awaited_.erase(oldest);
    DropTaken();
  }
  return true;
}

void Tombstones::Advance(Instant now) {
  const Instant expires = SaturatingAdd(now, ttl_);
  for (size_t i = stones_.size() - undated_; i < stones_.size(); ++i) stones_[i].expires = expires;
  undated_ = 0;
  while (!stones_.empty() && stones_.front().expires <= now) DropOldest();
}

void Tombstones::DropOldest() {
  awaited_.erase({stones_.front().key, stones_.front().number});
  stones_.pop_front();
  undated_ = std::min(undated_, stones_.size());
  DropTaken();
}

void Tombstones::DropTaken() {
  while (!stones_.empty() && !awaited_.contains({stones_.front().key, stones_.front().number})) {
    stones_.pop_front();
  }
  undated_ = std::min(undated_, stones_.size());
}

}  // namespace tensorferry::arena
