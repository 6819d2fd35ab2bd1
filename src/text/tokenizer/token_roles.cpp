#include "text/tokenizer/token_roles.h"

#include <algorithm>

namespace rapt::detail {

void assign_special_tokens(Tokenizer::Impl& impl) {
  const auto name = [&](std::optional<std::int32_t>& which,
                        std::initializer_list<std::string_view> names) {
    for (const std::string_view one : names) {
      if (which) return;
      const auto found = std::find_if(
          impl.added.begin(), impl.added.end(),
          [&](const AddedToken& token) { return token.special && token.content == one; });
      if (found != impl.added.end()) which = found->id;
    }
  };
  SpecialTokens& special = impl.special;
  if (!special.unk) special.unk = impl.options.unknown;
  name(special.unk, {"[UNK]", "<unk>", "<|unk|>"});
  name(special.bos, {"<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "[CLS]"});
  name(special.eos, {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]"});
  name(special.pad, {"<|padding|>", "<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>"});
  name(special.cls, {"[CLS]", "<cls>", "<s>"});
  name(special.sep, {"[SEP]", "<sep>", "</s>"});
  name(special.mask, {"[MASK]", "<mask>"});
}

}  // namespace rapt::detail
