// Stages a tensor, publishes it, and pulls it back over every transport that is built in.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "tensorferry/exporter/exporter.h"
#include "tensorferry/puller/puller.h"

namespace {

constexpr uint64_t kBytes = 3 << 20;

void Fill(std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + (i >> 8));
}

bool Pull(const std::string& transport, const tensorferry::Lease& lease) {
  tensorferry::PullerOptions options;
  options.landing_bytes = 2 * kBytes;
  options.local = transport == "local";
  options.tcp = transport == "tcp";
  auto puller = tensorferry::Puller::Create(std::move(options));
  if (!puller.ok()) {
    std::cerr << puller.status() << '\n';
    return false;
  }
  auto descriptor = lease.Descriptor();
  if (!descriptor.ok()) {
    std::cerr << descriptor.status() << '\n';
    return false;
  }
  auto view = (*puller)->Pull({.descriptor = *descriptor, .nbytes = kBytes}, {});
  if (!view.ok()) {
    std::cerr << view.status() << '\n';
    return false;
  }
  const bool same = std::ranges::equal(view->bytes(), lease.bytes());
  std::cout << view->transport() << ' ' << view->bytes().size() << (same ? " same" : " DIFFERS")
            << '\n';
  return same && view->transport() == transport;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer SOCKET\n";
    return 2;
  }
  tensorferry::ExporterOptions options;
  options.arena_bytes = 16 << 20;
  options.listen = "127.0.0.1:0";
  options.local_socket = argv[1];
  auto exporter = tensorferry::Exporter::Create(std::move(options));
  if (!exporter.ok()) {
    std::cerr << exporter.status() << '\n';
    return 1;
  }
  tensorferry::Staged staged = (*exporter)->Stage(kBytes);
  Fill(staged.bytes());
  const tensorferry::Lease lease = std::move(staged).Publish({});
  return Pull("local", lease) && Pull("tcp", lease) ? 0 : 1;
}
