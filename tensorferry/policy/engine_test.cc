#include "tensorferry/policy/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensorferry/base/error.h"
#include "tensorferry/policy/encoder_dtype.h"

namespace tensorferry {
namespace {

using testing::HasSubstr;

TEST(EngineProto, NamesParseBack) {
  for (const EngineProto proto : kAllEngineProtos) {
    EXPECT_EQ(*ParseEngineProto(EngineProtoName(proto)), proto);
  }
  for (const Modality modality : kAllModalities) {
    EXPECT_EQ(*ParseModality(ModalityName(modality)), modality);
  }
  for (const TensorRole role : {TensorRole::kMain, TensorRole::kSide}) {
    EXPECT_EQ(*ParseTensorRole(TensorRoleName(role)), role);
  }
  const auto wrong = ParseEngineProto("VLLM");
  EXPECT_EQ(ReasonOf(wrong.status()), Reason::kBadOption);
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("tokenspeed, vllm, sglang"));
}

TEST(EngineProto, TakesTheModalitiesOfItsMessages) {
  using E = EngineProto;
  const auto takers = [](Modality modality) {
    std::vector<EngineProto> out;
    for (const EngineProto proto : kAllEngineProtos) {
      if (TakesModality(proto, modality)) out.push_back(proto);
    }
    return out;
  };
  EXPECT_THAT(takers(Modality::kImage),
              testing::ElementsAre(E::kTokenSpeed, E::kVllm, E::kSglang, E::kTrtLlm));
  EXPECT_THAT(takers(Modality::kVideo), testing::ElementsAre(E::kTokenSpeed, E::kVllm));
  EXPECT_THAT(takers(Modality::kAudio), testing::ElementsAre(E::kTokenSpeed));
  EXPECT_THAT(takers(Modality::kEmbeddings), testing::ElementsAre(E::kTokenSpeed));
}

Settings WithDtypes() {
  return *ParseSettings({.environment = [](std::string_view name) -> std::optional<std::string> {
    if (name == "SMG_TOKENSPEED_IMAGE_ENCODER_INPUT_DTYPE") return "half";
    if (name == "SMG_TOKENSPEED_ENCODER_INPUT_DTYPE") return "fp32";
    return std::nullopt;
  }});
}

TEST(EncoderDtype, TokenSpeedsModalityBeforeTheCommonOneBeforeTheWorkersBeforeBfloat16) {
  const auto choose = [](const Settings& s, Modality m, const std::string& label) {
    return ChooseEncoderDtype(s, EngineProto::kTokenSpeed, m, {.label = label});
  };
  EXPECT_EQ(choose(WithDtypes(), Modality::kImage, "bf16").dtype, Dtype::kFloat16);
  EXPECT_EQ(choose(WithDtypes(), Modality::kVideo, "bf16").dtype, Dtype::kFloat32);
  const Settings none = *ParseSettings({});
  EXPECT_EQ(choose(none, Modality::kImage, "float16").dtype, Dtype::kFloat16);
  EXPECT_EQ(choose(none, Modality::kImage, "").dtype, Dtype::kBfloat16);
  const EncoderDtype unknown = choose(none, Modality::kImage, "float8");
  EXPECT_EQ(unknown.dtype, Dtype::kFloat32);
  EXPECT_THAT(unknown.warning, HasSubstr("float8"));
}

TEST(EncoderDtype, VllmsSettingBeforeTheDeviceBeforeTheWorkersBeforeFloat32) {
  Settings s = *ParseSettings({});
  const auto choose = [&](const EncoderFacts& worker) {
    return ChooseEncoderDtype(s, EngineProto::kVllm, Modality::kImage, worker).dtype;
  };
  EXPECT_EQ(choose({}), Dtype::kFloat32);
  EXPECT_EQ(choose({.label = "bfloat16"}), Dtype::kBfloat16);
  EXPECT_EQ(choose({.label = "bfloat16", .normalizes_on_device = true}), Dtype::kUint8);
  s.vllm_dtype = Dtype::kFloat16;
  EXPECT_EQ(choose({.label = "bfloat16", .normalizes_on_device = true}), Dtype::kFloat16);
}

TEST(EncoderDtype, OtherEnginesGetFloat32) {
  EXPECT_EQ(ChooseEncoderDtype(WithDtypes(), EngineProto::kSglang, Modality::kImage, {}).dtype,
            Dtype::kFloat32);
}

}  // namespace
}  // namespace tensorferry
