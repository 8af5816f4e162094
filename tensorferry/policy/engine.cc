#include "tensorferry/policy/engine.h"

#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

template <class Value, size_t N>
absl::StatusOr<Value> Find(std::string_view text, std::string_view what,
                           const std::array<Value, N>& all, std::string_view (*name)(Value)) {
  std::string names;
  for (const Value value : all) {
    if (text == name(value)) return value;
    StrAppend(&names, names.empty() ? "" : ", ", name(value));
  }
  return MakeError(Reason::kBadOption, StrCat(what, " \"", text, "\" is none of ", names));
}

}  // namespace

std::string_view EngineProtoName(EngineProto proto) {
  switch (proto) {
    case EngineProto::kTokenSpeed:
      return "tokenspeed";
    case EngineProto::kVllm:
      return "vllm";
    case EngineProto::kSglang:
      return "sglang";
    case EngineProto::kTrtLlm:
      return "trtllm";
    case EngineProto::kMlx:
      return "mlx";
  }
  return "";
}

std::string_view ModalityName(Modality modality) {
  switch (modality) {
    case Modality::kImage:
      return "image";
    case Modality::kVideo:
      return "video";
    case Modality::kAudio:
      return "audio";
    case Modality::kEmbeddings:
      return "embeddings";
  }
  return "";
}

std::string_view TensorRoleName(TensorRole role) {
  return role == TensorRole::kMain ? "main" : "side";
}

absl::StatusOr<EngineProto> ParseEngineProto(std::string_view text) {
  return Find(text, "engine", kAllEngineProtos, &EngineProtoName);
}

absl::StatusOr<Modality> ParseModality(std::string_view text) {
  return Find(text, "modality", kAllModalities, &ModalityName);
}

absl::StatusOr<TensorRole> ParseTensorRole(std::string_view text) {
  return Find(text, "tensor", std::array{TensorRole::kMain, TensorRole::kSide}, &TensorRoleName);
}

bool TakesModality(EngineProto proto, Modality modality) {
  switch (modality) {
    case Modality::kImage:
      return proto != EngineProto::kMlx;
    case Modality::kVideo:
      return proto == EngineProto::kVllm || proto == EngineProto::kTokenSpeed;
    case Modality::kAudio:
    case Modality::kEmbeddings:
      return proto == EngineProto::kTokenSpeed;
  }
  return false;
}

bool TakesHandles(EngineProto proto) {
  return proto == EngineProto::kTokenSpeed || proto == EngineProto::kVllm;
}

}  // namespace tensorferry
