// For tests that need the real NIXL: where it is, and a gateway of real leases.
//
//   TEST(WithNixlThing, Works) {
//     const auto nixl = NixlForTest();
//     if (!nixl) GTEST_SKIP() << kNoNixl;
//
// By convention such tests have names that start with WithNixl; ./dev test runs them where it has
// brought the wheel.
#ifndef TENSORFERRY_ENGINE_NIXL_NIXL_TESTING_H_
#define TENSORFERRY_ENGINE_NIXL_NIXL_TESTING_H_

#include <memory>
#include <string>

#include "tensorferry/engine/nixl/nixl_export_engine.h"
#include "tensorferry/engine/nixl/nixl_library.h"

namespace tensorferry::engine {

inline constexpr char kNoNixl[] = "./dev test --only peers brings NIXL into .peers";

// Of the wheel that ./dev test brings into .peers; empty where it has not. Tests run in the top
// folder.
std::string NixlDirForTest();
// Null where there is none.
std::shared_ptr<const NixlLibrary> NixlForTest();
// tensorferry-nixl-agent of this build.
std::string NixlAgentForTest();
// On 127.0.0.1 with the agent in a process of its own.
NixlExportOptions NixlExportOptionsForTest();

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_NIXL_NIXL_TESTING_H_
