// Which inference engine a worker runs, what it takes, and what a tensor is to it.
//
//   EngineProto proto = *ParseEngineProto("vllm");
//   if (!TakesModality(proto, Modality::kAudio)) ...    // no worker of it does
//
// Thread-safety: pure functions.
#ifndef TENSORFERRY_POLICY_ENGINE_H_
#define TENSORFERRY_POLICY_ENGINE_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "tensorferry/base/export.h"

namespace tensorferry {

// By the messages of its gRPC service.
enum class EngineProto : uint8_t { kTokenSpeed, kVllm, kSglang, kTrtLlm, kMlx };
inline constexpr std::array kAllEngineProtos = {EngineProto::kTokenSpeed, EngineProto::kVllm,
                                                EngineProto::kSglang, EngineProto::kTrtLlm,
                                                EngineProto::kMlx};

enum class Modality : uint8_t { kImage, kVideo, kAudio, kEmbeddings };
inline constexpr std::array kAllModalities = {Modality::kImage, Modality::kVideo, Modality::kAudio,
                                              Modality::kEmbeddings};

// kMain: the encoder's input (vLLM's pixel_values). kSide: every other tensor of an item.
enum class TensorRole : uint8_t { kMain, kSide };

// "tokenspeed", "vllm", "sglang", "trtllm", "mlx".
TENSORFERRY_EXPORT std::string_view EngineProtoName(EngineProto proto);
// "image", "video", "audio", "embeddings".
TENSORFERRY_EXPORT std::string_view ModalityName(Modality modality);
// "main", "side".
TENSORFERRY_EXPORT std::string_view TensorRoleName(TensorRole role);
// Exactly the names. Otherwise kBadOption, which lists them.
TENSORFERRY_EXPORT absl::StatusOr<EngineProto> ParseEngineProto(std::string_view text);
TENSORFERRY_EXPORT absl::StatusOr<Modality> ParseModality(std::string_view text);
TENSORFERRY_EXPORT absl::StatusOr<TensorRole> ParseTensorRole(std::string_view text);

// Whether workers of the engine take inputs of this modality at all.
TENSORFERRY_EXPORT bool TakesModality(EngineProto proto, Modality modality);
// Whether its TensorData can name bytes that lie elsewhere; otherwise everything is in the message.
TENSORFERRY_EXPORT bool TakesHandles(EngineProto proto);

}  // namespace tensorferry

#endif  // TENSORFERRY_POLICY_ENGINE_H_
