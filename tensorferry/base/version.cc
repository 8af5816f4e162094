#include "tensorferry/base/version.h"

namespace tensorferry {

std::string_view Version() { return TENSORFERRY_VERSION; }

}  // namespace tensorferry
