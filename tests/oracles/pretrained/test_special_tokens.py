"""Special tokens keep their roles through two conversions, as Transformers reads them."""

import json
import os
import pathlib
import subprocess

import pytest
import tokenizers
import torch
import transformers

COMMAND = pathlib.Path(os.environ.get(
    "RAPT_COMMAND", pathlib.Path(__file__).resolve().parents[3] / "build/release/bin/rapt"))


@pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")
def test_a_folder_converted_twice_has_the_same_special_tokens(tmp_path):
    words = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "a": 3, "b": 4}
    body = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<|endoftext|>"))
    body.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    source = transformers.PreTrainedTokenizerFast(
        tokenizer_object=body, bos_token="<|im_start|>", eos_token="<|im_end|>",
        pad_token="<|im_end|>", unk_token="<|endoftext|>", model_max_length=99)
    config = transformers.LlamaConfig(vocab_size=8, hidden_size=12, intermediate_size=20,
                                      num_hidden_layers=1, num_attention_heads=3)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "a")
    source.save_pretrained(tmp_path / "a")
    for one, other in ("ab", "bc"):
        subprocess.run([COMMAND, "convert", tmp_path / one, tmp_path / other], check=True)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "c")
    assert again.special_tokens_map == source.special_tokens_map
    assert again.model_max_length == 99
    texts = ["a b a", "b"]
    assert again(texts, padding=True)["input_ids"] == source(texts, padding=True)["input_ids"]


@pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")
def test_pairs_of_texts_keep_their_types(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog"]))
    source = transformers.BertTokenizer(vocab=str(vocabulary))
    config = transformers.BertConfig(vocab_size=8, hidden_size=12, intermediate_size=20, num_hidden_layers=1,
                                     num_attention_heads=3)
    transformers.BertModel(config).save_pretrained(tmp_path / "a")
    source.save_pretrained(tmp_path / "a")
    subprocess.run([COMMAND, "convert", tmp_path / "a", tmp_path / "b"], check=True)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "b")
    before = dict(source(["a cat", "a"], ["a dog", "cat cat"], padding=True))
    assert any(1 in types for types in before["token_type_ids"])
    assert dict(again(["a cat", "a"], ["a dog", "cat cat"], padding=True)) == before
    # What a model's own file says about it counts, even if the model has types.
    said = json.loads((tmp_path / "a/tokenizer_config.json").read_text())
    (tmp_path / "a/tokenizer_config.json").write_text(
        json.dumps(said | {"model_input_names": ["input_ids", "attention_mask"]}))
    subprocess.run([COMMAND, "convert", tmp_path / "a", tmp_path / "c"], check=True)
    assert list(transformers.AutoTokenizer.from_pretrained(tmp_path / "c")("a")) == ["input_ids", "attention_mask"]


@pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")
def test_a_unigram_tokenizer_of_many_languages_goes_through(tmp_path):
    """XLM-R's parts: pieces with scores, spaces as letters, <s> and </s> around a text."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0), ("\u2581a", -3.0),
              ("ca", -3.5), ("t", -3.2), ("at", -3.6), ("c", -4.0), ("a", -4.1), ("\u4f60\u597d", -5.0),
              ("<mask>", 0.0)]
    body = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=3))
    body.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    body.decoder = tokenizers.decoders.Metaspace()
    body.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    source = transformers.PreTrainedTokenizerFast(
        tokenizer_object=body, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")
    config = transformers.XLMRobertaConfig(
        vocab_size=len(pieces), hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=3,
        max_position_embeddings=34, type_vocab_size=1)
    model = transformers.XLMRobertaModel(config).eval()
    model.save_pretrained(tmp_path / "a")
    source.save_pretrained(tmp_path / "a")
    subprocess.run([COMMAND, "convert", tmp_path / "a", tmp_path / "b"], check=True)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "b")
    assert again.special_tokens_map == source.special_tokens_map
    texts = ["a cat", "cat at a", "\u4f60\u597d", "<mask> zzz"]
    batch = source(texts, padding=True, return_tensors="pt")
    assert again(texts, padding=True)["input_ids"] == batch["input_ids"].tolist()
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "b").eval()
    assert isinstance(loaded, transformers.XLMRobertaModel)
    said = subprocess.run([COMMAND, "embed", tmp_path / "a", *texts], capture_output=True, text=True, check=True)
    mine = torch.tensor([[float(x) for x in line.replace(",", " ").strip("[] ").split()]
                         for line in said.stdout.splitlines()])
    mask = batch["attention_mask"][..., None]
    with torch.no_grad():
        for each in (model, loaded):
            rows = each(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
            assert ((rows * mask).sum(1) / mask.sum(1) - mine).abs().max() <= 1e-5
