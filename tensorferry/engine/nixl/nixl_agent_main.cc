// tensorferry-nixl-agent: the gateway's NIXL agent, started by engine/nixl and by nothing else.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "tensorferry/engine/nixl/nixl_agent_process.h"

int main() {
  using tensorferry::engine::kNixlAgentMemfd;
  using tensorferry::engine::kNixlAgentSocket;
  if (::fcntl(kNixlAgentSocket, F_GETFD) < 0 || ::fcntl(kNixlAgentMemfd, F_GETFD) < 0) {
    std::fprintf(stderr,
                 "tensorferry-nixl-agent is started by a gateway that serves the nixl transport, "
                 "not by hand\n");
    _exit(2);
  }
  const int status = tensorferry::engine::RunNixlAgent();
  std::fflush(nullptr);
  _exit(status);
}
