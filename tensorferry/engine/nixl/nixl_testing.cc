#include "tensorferry/engine/nixl/nixl_testing.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace tensorferry::engine {

std::string NixlDirForTest() {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& python : fs::directory_iterator(".peers/lib", error)) {
    for (const auto& entry : fs::directory_iterator(python.path() / "site-packages", error)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(".nixl_cu") && name.ends_with(".libs"))
        return fs::absolute(entry.path());
    }
  }
  return "";
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
