#include "base/io/input.h"
#include "families/gguf/gguf_section.h"

namespace rapt {
namespace {

/// Models without token types, which DistilBERT's are, say that there is one all the same.
Index token_types_of(const GgufFile& file) {
  const GgufTensor* stored = file.find("token_types.weight");
  const Index rows = stored != nullptr ? stored->shape[0] : 0;
  const GgufSection tokenizer(file, "tokenizer.ggml");
  const Index said = tokenizer.integer("token_type_count", {1, 100000}, rows);
  return stored == nullptr && said <= 1 ? 0 : said;
}

/// The activation is that of BERT, which files do not name.
ModelConfig read_bert(const GgufSection& section) {
  ModelConfig config;
  config.kind = ModelConfig::Kind::encoder;
  config.patterns = {"full"};
  config.norm_place = ModelConfig::NormPlace::after;
  config.embedding_norm = true;
  config.head = false;
  config.activation = Activation::gelu;
  config.positions = ModelConfig::Positions::learned;
  config.vocabulary = gguf_vocabulary(section.file());
  config.width = section.integer("embedding_length", gguf_sizes);
  config.layers = section.integer("block_count", layer_counts);
  config.heads = section.integer("attention.head_count", {1, 100000});
  config.ffn = section.integer("feed_forward_length", gguf_sizes);
  config.max_tokens = section.integer("context_length", gguf_sizes);
  config.epsilon = section.decimal("attention.layer_norm_epsilon", {1e-30, 1});
  config.token_types = token_types_of(section.file());
  if (section.boolean("attention.causal"))
    fail_input(section.file().path(), ": ", section.key("attention.causal"),
               " is true, expected false: a bert reads texts as a whole here");
  section.must_be("attention.head_count_kv", static_cast<double>(config.heads));
  for (const char* length : {"attention.key_length", "attention.value_length"})
    section.must_be(length, static_cast<double>(config.dim()));
  section.must_be("embedding_length_out", static_cast<double>(config.width));
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
/// Files have no word for the norm: whoever reads them brings the vectors of those that pool to
/// length 1, as most models were trained for. A file that does not pool is taken for a folder that
/// says nothing.
Pooling bert_pooling(const GgufSection& section) {
  const Index kind = section.integer("pooling_type", {0, 4}, 0);
  if (kind > 2)
    fail_input(section.file().path(), ": ", section.key("pooling_type"), " is ", kind,
               kind == 3 ? " (the last token)" : " (the score of a ranking head)",
               ", expected 0 (none), 1 (mean) or 2 (first token)");
  Pooling made;
  made.kind = kind == 2 ? Pooling::Kind::first : Pooling::Kind::mean;
  made.normalized = kind != 0;
  return made;
}

}  // namespace

GgufArchitecture gguf_bert() {
  return {"bert", read_bert, bert_names, bert_pooling, {"blk.", "cls", "dense_"}};
}

}  // namespace rapt
