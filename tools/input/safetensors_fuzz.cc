#include <cstdint>
#include <vector>

#include "tensorferry/base/dtype.h"
#include "tools/input/safetensors.h"

// Whatever parses lies within the file, and can be produced.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorferry;
  using namespace tensorferry::tools;
  const auto arrays = ParseSafetensors(std::as_bytes(std::span(data, size)));
  if (!arrays.ok()) return 0;
  for (const NamedArray& array : *arrays) {
    const ArraySource& source = array.source;
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kInt64}) {
      if (!ChooseDtype(source.element, dtype).ok()) continue;
      std::vector<std::byte> out(TensorBytes(source.shape, dtype).value());
      ProduceArray(source, dtype, out);
    }
  }
  return 0;
}
