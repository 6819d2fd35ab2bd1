#include "text/tokenizer/tokenizer_names.h"

#include <algorithm>

namespace rapt {

void name_special_tokens(Tokenizer::Body& body) {
  const auto name = [&](std::optional<std::int32_t>& which,
                        std::initializer_list<std::string_view> names) {
    for (const std::string_view one : names) {
      if (which) return;
      const auto found = std::find_if(
          body.added.begin(), body.added.end(),
          [&](const AddedToken& token) { return token.special && token.content == one; });
      if (found != body.added.end()) which = found->id;
    }
  };
  SpecialTokens& special = body.special;
  if (!special.unknown) special.unknown = body.options.unknown;
  name(special.unknown, {"[UNK]", "<unk>", "<|unk|>"});
  name(special.begin, {"<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "[CLS]"});
  name(special.end, {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]"});
  name(special.padding, {"<|padding|>", "<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>"});
  name(special.classify, {"[CLS]", "<cls>", "<s>"});
  name(special.separator, {"[SEP]", "<sep>", "</s>"});
  name(special.mask, {"[MASK]", "<mask>"});
}

}  // namespace rapt
