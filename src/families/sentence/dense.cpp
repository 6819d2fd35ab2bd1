#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/io/check_input.h"
#include "base/io/files.h"
#include "families/sentence/sentence_config.h"
#include "formats/tensors/safetensors_file.h"
#include "nn/matmul/gemm.h"

namespace rapt::detail {
namespace {

constexpr const char* weight_name = "linear.weight";
constexpr const char* bias_name = "linear.bias";

std::string text_of(const std::vector<Index>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

/// The numbers of a tensor that must have this shape.
std::vector<float> numbers_of(const Weights& weights, const char* name,
                              const std::vector<Index>& shape, const std::string& folder,
                              const LoadOptions& options) {
  const StoredTensor* found = weights.find(name);
  check_input(found != nullptr, folder, ": there is no ", name);
  check_input(found->shape == shape, folder, ": ", name, " has shape ", text_of(found->shape),
              ", expected ", text_of(shape));
  const Tensor read = weights.read(name);
  const Index bad = options.allow_non_finite ? 0 : count_non_finite(read);
  check_input(bad == 0, folder, ": ", name, " has ", bad, " of ", read.elements(),
              " numbers that are infinite or NaN; to load it anyway, set allow_non_finite");
  const Tensor wide = read.converted(Type::f32);
  return {wide.data(), wide.data() + wide.elements()};
}

}  // namespace

Dense read_dense(const SentenceConfig::Layer& layer, const std::string& model_folder, Index width,
                 const LoadOptions& options) {
  Dense made = layer.dense;
  check_input(made.in_features == width, layer.folder, "/config.json: in_features is ",
              made.in_features, ", expected ", width, ", as wide as what it is given");
  const Weights weights(layer.folder, model_folder);
  made.weight = numbers_of(weights, weight_name, {made.out_features, made.in_features},
                           layer.folder, options);
  if (layer.bias)
    made.bias = numbers_of(weights, bias_name, {made.out_features}, layer.folder, options);
  for (const std::string& name : weights.names())
    check_input(name == weight_name || (layer.bias && name == bias_name), layer.folder, ": ",
                printable(name), " is a weight that config.json has no place for");
  return made;
}

void write_dense(const std::string& folder, const Dense& layer, Type type) {
  std::filesystem::create_directory(folder);
  const bool tanh = layer.activation == Dense::Activation::tanh;
  const Json config{{"in_features", layer.in_features},
                    {"out_features", layer.out_features},
                    {"bias", !layer.bias.empty()},
                    {"activation_function", tanh ? "torch.nn.modules.activation.Tanh"
                                                 : "torch.nn.modules.linear.Identity"}};
  replace_file(folder + "/config.json", config.dump(2) + "\n");
  const auto rounded = [&](const std::vector<float>& numbers, const Shape& shape) {
    Tensor made = Tensor::uninitialized(shape);
    std::copy(numbers.begin(), numbers.end(), made.data());
    return made.converted(type);
  };
  const Tensor weight = rounded(layer.weight, {layer.out_features, layer.in_features});
  Tensor bias;
  std::vector<NamedTensor> tensors = {{weight_name, weight}};
  if (!layer.bias.empty()) {
    bias = rounded(layer.bias, {layer.out_features});
    tensors.push_back({bias_name, bias});
  }
  write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
}

Tensor apply_dense(const Dense& layer, const Tensor& rows, const Context& context) {
  const Index texts = rows.shape()[0];
  Tensor made = Tensor::uninitialized({texts, layer.out_features});
  const Matrix weight{layer.weight.data(), Type::f32,         layer.out_features,
                      layer.in_features,   layer.in_features, 1};
  multiply({rows.data(), Type::f32, texts, layer.in_features, layer.in_features, 1},
           weight.transposed(),
           {.data = made.data(),
            .stride = layer.out_features,
            .bias = layer.bias.empty() ? nullptr : layer.bias.data()},
           context);
  if (layer.activation == Dense::Activation::tanh)
    for (float& number : made.numbers()) number = std::tanh(number);
  return made;
}

}  // namespace rapt::detail
