// The library's version, "0.1.0": for people and logs, never to decide by.
#ifndef TENSORFERRY_BASE_VERSION_H_
#define TENSORFERRY_BASE_VERSION_H_

#include <string_view>

#include "tensorferry/base/export.h"

namespace tensorferry {

TENSORFERRY_EXPORT std::string_view Version();

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_VERSION_H_
