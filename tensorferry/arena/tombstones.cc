#include "tensorferry/arena/tombstones.h"

#include <iterator>

namespace tensorferry::arena {

void Tombstones::Add(int64_t key, uint32_t awaited) {
  if (max_ == 0) return;
  if (stones_.size() == max_) Drop(stones_.begin());
  const uint64_t number = next_number_++;
  stones_.push_back({.key = key, .number = number, .awaited = awaited, .expires = std::nullopt});
  by_key_.emplace(std::pair(key, number), std::prev(stones_.end()));
}

bool Tombstones::Take(int64_t key) {
  const auto oldest = by_key_.lower_bound({key, 0});
  if (oldest == by_key_.end() || oldest->first.first != key) return false;
  const ByAge::iterator stone = oldest->second;
  if (--stone->awaited == 0) Drop(stone);
  return true;
}

void Tombstones::Advance(Instant now) {
  const Instant expires = SaturatingAdd(now, ttl_);
  for (auto it = stones_.rbegin(); it != stones_.rend() && !it->expires.has_value(); ++it) {
    it->expires = expires;
  }
  while (!stones_.empty() && *stones_.front().expires <= now) Drop(stones_.begin());
}

void Tombstones::Drop(ByAge::iterator stone) {
  by_key_.erase({stone->key, stone->number});
  stones_.erase(stone);
}

}  // namespace tensorferry::arena
