#include "tensorferry/engine/nixl/nixl_testing.h"

#include <cstdlib>
#include <filesystem>

namespace tensorferry::engine {

std::string NixlDirForTest() {
  const char* dir = std::getenv("TENSORFERRY_NIXL_LIB");
  return dir == nullptr ? "" : dir;
}

std::shared_ptr<const NixlLibrary> NixlForTest() {
  if (NixlDirForTest().empty()) return nullptr;
  auto library = NixlLibrary::Open({.dir = NixlDirForTest()});
  if (!library.ok()) std::abort();
  return *library;
}

std::string NixlAgentForTest() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tools" /
         "tensorferry-nixl-agent";
}

NixlExportOptions NixlExportOptionsForTest() {
  NixlExportOptions options;
  options.library.dir = NixlDirForTest();
  options.listen = *SocketAddress::Parse("127.0.0.1:0");
  options.agent_program = NixlAgentForTest();
  return options;
}

}  // namespace tensorferry::engine
