#include <cstdint>
#include <vector>

#include "tensorferry/base/dtype.h"
#include "tools/input/npy.h"

// Whatever parses can also be produced, in every dtype that it becomes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry;
  using namespace tensorferry::tools;
  const auto source = ParseNpy(std::as_bytes(std::span(data, size)));
  if (!source.ok()) return 0;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16, Dtype::kUint8,
                            Dtype::kInt64, Dtype::kUint32}) {
    if (!ChooseDtype(source->element, dtype).ok()) continue;
    std::vector<std::byte> out(TensorBytes(source->shape, dtype).value());
    ProduceArray(*source, dtype, out);
  }
  return 0;
}
