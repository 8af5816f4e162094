// In which dtype an encoder's input is sent.
//
//   EncoderDtype d = ChooseEncoderDtype(settings, EngineProto::kTokenSpeed, Modality::kImage,
//                                       {.label = "float16"});
//   if (!d.warning.empty()) log(d.warning);
//   Pack(pixels, d.dtype, staged.bytes());                 // base/pack.h
//
// For TokenSpeed: the modality's setting, the common one, what the worker says, bfloat16. For vLLM:
// the setting, uint8 for a worker that normalises on its device, what the worker says, float32.
// Thread-safety: pure functions.
#ifndef TENSORFERRY_POLICY_ENCODER_DTYPE_H_
#define TENSORFERRY_POLICY_ENCODER_DTYPE_H_

#include <string>

#include "tensorferry/base/dtype.h"
#include "tensorferry/base/export.h"
#include "tensorferry/policy/engine.h"
#include "tensorferry/policy/settings.h"

namespace tensorferry {

// What a worker says of its encoder.
struct EncoderFacts {
  std::string label = {};  // multimodal_encoder_dtype; empty: nothing
  bool normalizes_on_device = false;
};

struct EncoderDtype {
  Dtype dtype = Dtype::kFloat32;
  std::string warning = {};  // the label is no dtype: then float32, which every encoder takes
};

TENSORFERRY_EXPORT EncoderDtype ChooseEncoderDtype(const Settings& settings, EngineProto proto,
                                                   Modality modality, const EncoderFacts& worker);

}  // namespace tensorferry

#endif  // TENSORFERRY_POLICY_ENCODER_DTYPE_H_
