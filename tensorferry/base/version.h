// The library's version, "0.1.0": for people and logs, never to decide by.
#ifndef TENSORFERRY_BASE_VERSION_H_
#define TENSORFERRY_BASE_VERSION_H_

#include <string_view>

namespace tensorferry {

std::string_view Version();

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_VERSION_H_
