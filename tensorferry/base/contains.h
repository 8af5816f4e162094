// Whether a list holds a value.
//
//   if (Contains(worker.transports, "nixl")) ...
//
// Thread-safety: a pure function.
#ifndef TENSORFERRY_BASE_CONTAINS_H_
#define TENSORFERRY_BASE_CONTAINS_H_

#include <algorithm>
#include <iterator>

namespace tensorferry {

template <class Container, class Value>
bool Contains(const Container& container, const Value& value) {
  return std::find(std::begin(container), std::end(container), value) != std::end(container);
}

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_CONTAINS_H_
