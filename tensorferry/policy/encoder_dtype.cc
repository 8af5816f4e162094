#include "tensorferry/policy/encoder_dtype.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

std::optional<Dtype> OfModality(const Settings& settings, Modality modality) {
  switch (modality) {
    case Modality::kImage:
      return settings.image_dtype;
    case Modality::kVideo:
      return settings.video_dtype;
    case Modality::kAudio:
      return settings.audio_dtype;
    case Modality::kEmbeddings:
      return std::nullopt;
  }
  return std::nullopt;
}

EncoderDtype OfLabel(const std::string& label, Dtype otherwise) {
  if (absl::StripAsciiWhitespace(label).empty()) return {.dtype = otherwise};
  const absl::StatusOr<Dtype> dtype = ParseEncoderDtype(label);
  if (dtype.ok()) return {.dtype = *dtype};
  return {.dtype = Dtype::kFloat32,
          .warning = StrCat("the worker's multimodal_encoder_dtype \"",
                            absl::CHexEscape(label.substr(0, 80)),
                            "\" is no dtype that is known here: float32 is sent")};
}

}  // namespace

EncoderDtype ChooseEncoderDtype(const Settings& settings, EngineProto proto, Modality modality,
                                const EncoderFacts& worker) {
  if (proto == EngineProto::kTokenSpeed) {
    if (const auto dtype = OfModality(settings, modality)) return {.dtype = *dtype};
    if (settings.tokenspeed_dtype) return {.dtype = *settings.tokenspeed_dtype};
    return OfLabel(worker.label, Dtype::kBfloat16);
  }
  if (proto != EngineProto::kVllm) return {.dtype = Dtype::kFloat32};
  if (settings.vllm_dtype) return {.dtype = *settings.vllm_dtype};
  if (worker.normalizes_on_device) return {.dtype = Dtype::kUint8};
  return OfLabel(worker.label, Dtype::kFloat32);
}

}  // namespace tensorferry
