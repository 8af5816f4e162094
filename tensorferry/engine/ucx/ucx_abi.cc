#include "tensorferry/engine/ucx/ucx_abi.h"

#include "absl/base/config.h"
#include "absl/status/status.h"
#include "tensorferry/base/text.h"
#include "tensorferry/base/version.h"

#ifndef ABSL_LTS_RELEASE_VERSION
#define ABSL_LTS_RELEASE_VERSION 0
#endif

namespace tensorferry::engine {

std::string UcxAbi() { return UcxAbiOf(TENSORFERRY_UCX_INTERFACE); }

std::string UcxAbiOf(std::string_view headers) {
  return StrCat("tensorferry ", Version(), ", headers ", headers, ", abseil ",
                ABSL_LTS_RELEASE_VERSION, ", C++ ABI ", __GXX_ABI_VERSION, ", sizes ",
                sizeof(std::string), " ", sizeof(absl::Status), " ", sizeof(UcxExportOptions), " ",
                sizeof(UcxPullOptions), " ", sizeof(PullRequest), " ", sizeof(wire::Descriptor),
                " ", sizeof(ArenaView), " ", sizeof(PinnedBytes));
}

}  // namespace tensorferry::engine
