#include "base/io/check_input.h"
#include "families/gguf/gguf_section.h"

namespace rapt::detail {
namespace {

/// Models without token types, such as DistilBERT, still claim to have one.
Index token_types_of(const GgufFile& file) {
  const GgufTensor* stored = file.find("token_types.weight");
  const Index rows = stored != nullptr ? stored->shape[0] : 0;
  const GgufSection tokenizer(file, "tokenizer.ggml");
  const Index count = tokenizer.integer("token_type_count", {1, 100000}, rows);
  return stored == nullptr && count <= 1 ? 0 : count;
}

/// Files do not name the activation, which is that of BERT.
ModelConfig read_bert(const GgufSection& section) {
  ModelConfig config = post_norm_encoder();
  config.head = false;
  config.activation = Activation::gelu;
  read_gguf_sizes(section, config);
  config.type_vocab_size = token_types_of(section.file());
  if (section.boolean("attention.causal"))
    fail_input(section.file().path(), ": ", section.key("attention.causal"),
               " is true, expected false: a bert sees the whole text");
  section.must_be("embedding_length_out", static_cast<double>(config.hidden_size));
  for (const char* absent :
       {"expert_count", "attention.max_alibi_bias", "attention.sliding_window"})
    section.must_be(absent, 0);
  return config;
}

std::vector<NameRow> bert_names() {
  const std::string ours = "encoder.layers.*.", theirs = "blk.*.";
  return {{"embedding.norm", {"token_embd_norm"}},
          {"embedding", {"token_embd"}},
          {"positions", {"position_embd"}},
          {"types", {"token_types"}},
          {ours + "attention.qkv", {theirs + "attn_q", theirs + "attn_k", theirs + "attn_v"}},
          {ours + "attention.out", {theirs + "attn_output"}},
          {ours + "attention.norm", {theirs + "attn_output_norm"}},
          {ours + "ffn.up", {theirs + "ffn_up"}},
          {ours + "ffn.down", {theirs + "ffn_down"}},
          {ours + "ffn.norm", {theirs + "layer_output_norm"}}};
}

/// 0 is none, 1 the mean, 2 the first token; 3 would be the last, 4 the score of a ranking head.
///
/// Files do not say whether to normalize: other readers do so for models that pool, as most were
/// trained. A file without pooling is treated like a folder that does not say.
Pooling bert_pooling(const GgufSection& section) {
  const Index kind = section.integer("pooling_type", {0, 4}, 0);
  if (kind > 2)
    fail_input(section.file().path(), ": ", section.key("pooling_type"), " is ", kind,
               kind == 3 ? " (the last token)" : " (the score of a ranking head)",
               ", expected 0 (none), 1 (mean) or 2 (first token)");
  Pooling made;
  made.kind = kind == 2 ? Pooling::Kind::cls : Pooling::Kind::mean;
  made.normalize = kind != 0;
  return made;
}

}  // namespace

GgufArchitecture gguf_bert() {
  return {"bert", read_bert, bert_names, bert_pooling, {"blk.", "cls", "dense_"}};
}

}  // namespace rapt::detail
