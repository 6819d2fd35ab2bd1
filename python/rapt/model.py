"""Models that others trained, and those of `rapt train`: read, run, write."""

from __future__ import annotations

import sys
import warnings
from typing import List, NamedTuple, Optional

from rapt import _core, _given

Tokenizer = getattr(_core, "Tokenizer", None)
# The defaults of the C++ library, which `rapt generate` has too.
_USUAL = _core.GenerateOptions() if Tokenizer else None


def load(path, weights="stored", allow_non_finite=False):
    """Reads a model: a folder of Hugging Face's, a GGUF file, a run of `rapt train`, or a name such
    as "minilm" or "smollm2" that an installed package stands for.

    weights is what matrices are kept as: "stored" (few bits stay few bits, bf16 and f16 stay what they
    are, all else is f32), "f32", "bf16", "f16", "q8_0", "q4_0" or "q4_1". A model of others with weights
    that are infinite or NaN is refused unless allow_non_finite says otherwise.
    """
    if Tokenizer is None:
        raise RuntimeError("load: rapt was built without models; install what scripts/setup names and "
                           "build it again")
    where = _given.path("load: path", path, "a folder, a GGUF file, or a name such as \"smollm2\"")
    model = _core.load(where, _given.word("load: weights", weights, "f32"), _packages(),
                       _given.flag("load: allow_non_finite", allow_non_finite))
    for line in model.notices:
        warnings.warn(line, stacklevel=2)
    return Model(model)


def _packages():
    """Where packages that carry weights may be."""
    return [folder for folder in sys.path if folder]


def _usual(option):
    return getattr(_USUAL, option, None)


class Generated(NamedTuple):
    """What a model wrote behind a prompt, and why it ended."""

    text: Optional[str]  # None for models without a tokenizer
    ids: List[int]  # of the new tokens; the one that ended it is not among them
    finish: str  # "end": an end token; "length": all tokens asked for; "context": it is full; "cancelled"
    log_probability: float  # of the tokens, under the model itself


class Model:
    """A Transformer with its tokenizer. Arrays are numpy's.

    tokenizer is None for models of tasks, whose prompts are lists of ids.
    """

    def __init__(self, core):
        self._core = core
        self.tokenizer = core.tokenizer
        self._viewed = False
        core.pack(_core.Context())  # few tokens are faster; no memory is added

    def __reduce_ex__(self, protocol):
        raise TypeError("Model: a model cannot be copied or pickled; rapt.load it where it is needed, in each process")

    family = property(lambda self: self._core.family)
    width = property(lambda self: self._core.width)
    vocabulary = property(lambda self: self._core.vocabulary)

    def __repr__(self):
        return (f"<rapt.Model {self.family}: {self._core.count:,} parameters, width {self.width}, "
                f"vocabulary {self.vocabulary:,}>")

    def parameters(self, framework="numpy"):
        """Names to arrays that are the model's own memory: what is written into them is used after
        refresh().

        framework is "numpy" or "torch". numpy knows bf16 only with the package ml_dtypes. Matrices in
        few bits are no arrays: they are left out, with a warning.
        """
        views = self._core.parameters(_given.word("parameters: framework", framework, "torch"))
        self._viewed = True  # and its matrices stay where they are from now on
        few = [name for name, view in views.items() if view is None]
        if few:
            warnings.warn(f"parameters: {len(few)} of {len(views)} are in few bits, which no array has, and "
                          f'left out, {few[0]} first; weights="f32" expands them', stacklevel=2)
        return {name: view for name, view in views.items() if view is not None}

    def refresh(self):
        """After parameters have changed."""
        self._core.refresh()

    def forward(self, sequences, sources=None, *, logits=False, context=None):
        """[tokens of all sequences, width]: the last layer's rows, or with logits=True
        [tokens, vocabulary]. sequences is a list of lists of ids; nothing is padded. sources are
        what an encoder-decoder's encoder reads, one for each sequence."""
        given = _given.sequences("forward: sequences", sequences, self.vocabulary)
        read = None if sources is None else _given.sequences("forward: sources", sources, self.vocabulary)
        return self._core._forward(given, read, _given.flag("forward: logits", logits),
                                   _given.context("forward", context))

    def embed(self, texts, *, context=None):
        """[texts, width]: one vector for each text, as the model's folder says; behind dense layers of a
        sentence-transformers folder as wide as the last of them. A warning says which texts are longer than
        what the model reads."""
        vectors, cut = self._core._embed(_given.texts("embed: texts", texts), _given.context("embed", context))
        if cut:
            which, tokens = cut[0]
            warnings.warn(f"embed: {len(cut)} of the texts {'is' if len(cut) == 1 else 'are'} cut to the "
                          f"{self._core.embed_limit} tokens that the model reads; texts[{which}] has {tokens}",
                          stacklevel=2)
        return vectors

    def generate(self, prompts, *, tokens=_usual("tokens"), temperature=_usual("temperature"),
                 top_k=_usual("top_k"), top_p=_usual("top_p"), min_p=_usual("min_p"),
                 repetition=_usual("repetition"), seed=_usual("seed"), beams=_usual("beams"),
                 cache=_usual("cache"), chat=False, system=None, window=_usual("window"),
                 overflow=_usual("overflow"), pinned=_usual("pinned"), token=None, details=False, context=None):
        """Goes on from a prompt, or from each of a list. Prompts are texts, or lists of ids, and so
        are the answers. token(prompt, id) is called as tokens come; true ends the writing.

        Defaults are those of `rapt generate`: at most 128 tokens, drawn at temperature 0.8; temperature=0
        is always the likeliest. The same seed writes the same text.

        With chat=True prompts are questions to a model that was trained to chat, and system is what it is
        told first; it is one turn. window is how many tokens are seen at a time (0: all that the model has
        positions for, which RoPE and ALiBi do not limit); where it is full, overflow says "stop", or "slide",
        which keeps the first `pinned` ones.

        With details=True an answer is a rapt.Generated: its text, its ids, and why it ended.
        """
        asked, alone = _prompts(prompts)
        chat, details = _given.flag("generate: chat", chat), _given.flag("generate: details", details)
        self._check_chat(asked, chat, system)
        text = any(isinstance(prompt, str) for prompt in asked)
        if text and self.tokenizer is None:
            raise ValueError("generate: the model has no tokenizer, expected lists of ids")
        names = ["generate: prompts"] if alone else [f"generate: prompts[{i}]" for i in range(len(asked))]
        ids = [self._prompt(_given.text(name, p), chat, system) if isinstance(p, str)
               else _given.ids(name, p, self.vocabulary) for name, p in zip(names, asked)]
        if token is not None and not callable(token):
            raise TypeError(f"generate: token is {_given.said(token)}, expected a function token(prompt, id)")
        options = _core.GenerateOptions()
        for name, value in (("tokens", tokens), ("top_k", top_k), ("beams", beams), ("window", window),
                            ("pinned", pinned)):
            setattr(options, name, _given.whole(f"generate: {name}", value))
        for name, value in (("temperature", temperature), ("top_p", top_p), ("min_p", min_p),
                            ("repetition", repetition)):
            setattr(options, name, _given.real(f"generate: {name}", value))
        options.seed = _given.whole("generate: seed", seed, 0, 2**64 - 1)
        options.cache = _given.word("generate: cache", cache, "bf16")
        options.overflow = _given.word("generate: overflow", overflow, "slide")
        self._warn(ids, chat, options)
        options.log_probability = bool(details)
        made = self._core._generate(ids, options, chat, token, _threads(context))
        answers = [self._answer(each, text, details) for each in made]
        return answers[0] if alone else answers

    def _answer(self, made, text, details):
        """An answer to a prompt, from (ids, finish, log_probability)."""
        spoken = self.tokenizer.decode(made[0]) if self.tokenizer is not None and (text or details) else None
        if details:
            return Generated(spoken, *made)
        return spoken if text else made[0]

    def _prompt(self, text, chat, system):
        """As `rapt generate` reads it."""
        return self._core._chat(text, system) if chat else self._core._prompt(text)

    def _check_chat(self, prompts, chat, system):
        if not chat and system is not None:
            raise ValueError(f"generate: system is {_given.said(system)} without chat, expected chat=True")
        if system is not None:
            _given.text("generate: system", system)
        for i, prompt in enumerate(prompts if chat else []):
            if not isinstance(prompt, str):
                raise TypeError(f"generate: chat with prompts[{i}] {_given.said(prompt)}, expected a text: the user's "
                                "one question; what the model is told first is system=")

    def _warn(self, prompts, chat, options):
        """What `rapt generate` says before it begins."""
        if chat and not self._core.has_chat_template:
            warnings.warn("generate: the model has no chat template; the form is ChatML, whose tokens it has",
                          stacklevel=3)
        most = self._core.made_for
        which, longest = max(enumerate(prompts), key=lambda each: len(each[1]), default=(0, ()))
        if 0 < most < options.most_seen(len(longest)):
            written = "" if len(longest) > most else f" and up to {options.tokens} may follow"
            warnings.warn(f"generate: prompts[{which}] has {len(longest)} tokens{written}, the model was made for "
                          f"{most}", stacklevel=3)

    def save(self, folder, dtype="f32"):
        """Writes a new folder that Transformers loads with from_pretrained."""
        where = _given.path("save: folder", folder, "the path of a new folder")
        rounded = _given.word("save: dtype", dtype, "bf16")
        self._core.unpack()
        try:
            left_out = self._core._save(where, rounded)
        finally:
            if not self._viewed:
                self._core.pack(_core.Context())
        if left_out:
            more = f" and {len(left_out) - 8} more" if len(left_out) > 8 else ""
            warnings.warn(f"save: not written, since rapt computes nothing with them: {', '.join(left_out[:8])}{more}",
                          stacklevel=2)


def _threads(context):
    if hasattr(context, "__index__") and not isinstance(context, bool):
        raise TypeError(f"generate: context is {context} (int), expected None or a rapt.Context; how many tokens are "
                        f"seen is window={context}")
    return _given.context("generate", context)


def _prompts(given):
    """A list of prompts, and whether it was one alone."""
    if isinstance(given, str):
        return [given], True
    prompts = _given.list_of("generate: prompts", given, "a text, a list of token ids, or a list of those")
    alone = bool(prompts) and not isinstance(prompts[0], str) and not hasattr(prompts[0], "__len__")
    return ([prompts], True) if alone else (prompts, False)
