#include <cstdint>
#include <vector>

#include "tools/input/jpeg.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry;
  using namespace tensorferry::tools;
  constexpr uint64_t kMaxPixels = 1 << 14;  // so that one input takes no seconds
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto picture = ReadJpegHeader(bytes, kMaxPixels);
  if (!picture.ok()) return 0;
  std::vector<uint16_t> out(size_t{3} * picture->width * picture->height);
  (void)DecodeJpeg(bytes, *picture, Dtype::kBfloat16, std::as_writable_bytes(std::span(out)));
  return 0;
}
