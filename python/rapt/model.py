"""Pretrained models and runs of `rapt train`: load, run, save."""

from __future__ import annotations

import dataclasses
import os
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from rapt import _core, _given, _renamed
from rapt._find_model import find_model

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from rapt._core import Tokenizer as Tokenizer
else:
    Tokenizer = getattr(_core, "Tokenizer", None)  # None: built without models
# The defaults of the C++ library, which `rapt generate` has too.
_DEFAULTS = _core.GenerateOptions() if Tokenizer is not None else None
_COUNTS = ("max_new_tokens", "num_beams", "pinned")
_OPTIONAL_COUNTS = ("top_k", "repetition_window", "context_size")
_RENAMED = {"tokens": "max_new_tokens", "window": "context_size", "cache": "cache_type", "beams": "num_beams",
            "repetition": "repetition_penalty"}  # as the migration list says
_NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty", "length_penalty")


def load(path: Union[str, os.PathLike[str]], weight_type: str = "stored", allow_non_finite: bool = False) -> Model:
    """Loads a model: a folder in the format of Hugging Face, a GGUF file, a run of `rapt train`, or the name of
    an installed package such as "minilm" or "smollm2".

    weight_type is the type of matrices: "stored" (quantized, bf16 and f16 ones stay as they are, everything
    else becomes f32), "f32", "bf16", "f16", "q8_0", "q4_0" or "q4_1". Pretrained models with infinite or NaN
    weights are refused unless allow_non_finite is set.
    """
    if Tokenizer is None:
        raise RuntimeError("load: rapt was built without models; install what scripts/setup names and "
                           "build it again")
    name = _given.path("load: path", path, "a folder, a GGUF file, or a name such as \"smollm2\"")
    weight_type = _given.word("load: weight_type", weight_type, "f32")
    allow_non_finite = _given.flag("load: allow_non_finite", allow_non_finite)
    core = _core.load(find_model(name), weight_type, allow_non_finite)
    for line in core.warnings:
        warnings.warn(line, stacklevel=2)
    return Model(core)


def _default(option: str) -> Any:
    return getattr(_DEFAULTS, option, None)


@dataclasses.dataclass(frozen=True)
class GenerateOptions:
    """How Model.generate continues a prompt, which describes the fields. The defaults are those of
    `rapt generate`."""

    max_new_tokens: int = _default("max_new_tokens")
    temperature: float = _default("temperature")
    top_k: Optional[int] = _default("top_k")
    top_p: float = _default("top_p")
    min_p: float = _default("min_p")
    repetition_penalty: float = _default("repetition_penalty")
    repetition_window: Optional[int] = _default("repetition_window")
    seed: int = _default("seed")
    num_beams: int = _default("num_beams")
    length_penalty: float = _default("length_penalty")
    cache_type: str = _default("cache_type")
    context_size: Optional[int] = _default("context_size")
    overflow: str = _default("overflow")
    pinned: int = _default("pinned")


class Generated(NamedTuple):
    """A model's answer to a prompt."""

    text: Optional[str]  # None for models without a tokenizer
    ids: List[int]  # of the new tokens, without the stop token
    finish_reason: str  # "eos": a stop token; "length": max_new_tokens; "context": it is full; "cancelled"
    log_probability: float  # of the tokens, under the model itself


class Model:
    """A Transformer with its tokenizer. Arrays are numpy's.

    tokenizer is None for models of tasks, whose prompts are lists of ids.
    """

    def __init__(self, core: Any) -> None:
        self._core = core
        self.tokenizer: Optional[Tokenizer] = core.tokenizer
        self._viewed = False
        core.pack(_core.Context())  # a few tokens are faster; no memory is added

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("Model: a model cannot be copied or pickled; rapt.load it where it is needed, in each process")

    @property
    def family(self) -> str:
        """"llama", "bert", ...; "rapt": a run of `rapt train`."""
        return str(self._core.family)

    @property
    def hidden_size(self) -> int:
        return int(self._core.hidden_size)

    @property
    def vocab_size(self) -> int:
        return int(self._core.vocab_size)

    def __repr__(self) -> str:
        return (f"<rapt.Model {self.family}: {self._core.count:,} parameters, hidden size {self.hidden_size}, "
                f"vocabulary {self.vocab_size:,}>")

    def parameters(self, framework: str = "numpy") -> Dict[str, Any]:
        """Names to arrays that are the model's own memory: call refresh() after writing to them.

        framework is "numpy" or "torch". numpy needs the package ml_dtypes for bf16. Quantized matrices are no
        arrays: they are left out, with a warning.
        """
        views = self._core.parameters(_given.word("parameters: framework", framework, "torch"))
        self._viewed = True  # its matrices stay where they are from now on
        quantized = [name for name, view in views.items() if view is None]
        if quantized:
            warnings.warn(f"parameters: {len(quantized)} of {len(views)} are quantized and left out, {quantized[0]} "
                          'first; weight_type="f32" expands them', stacklevel=2)
        return {name: view for name, view in views.items() if view is not None}

    def refresh(self) -> None:
        """Call after parameters have changed."""
        self._core.refresh()

    def forward(self, sequences: Any, sources: Any = None, *, logits: bool = False,
                context: Optional[_core.Context] = None) -> NDArray[float32]:
        """[tokens of all sequences, hidden size]: the last layer's rows, or with logits=True
        [tokens, vocabulary]. sequences is a list of lists of ids, without padding. sources are
        what the encoder of an encoder-decoder reads, one for each sequence."""
        given = _given.sequences("forward: sequences", sequences, self.vocab_size)
        read = None if sources is None else _given.sequences("forward: sources", sources, self.vocab_size)
        rows: NDArray[float32] = self._core._forward(given, read, _given.flag("forward: logits", logits),
                                                     _given.context("forward", context))
        return rows

    def embed(self, texts: Union[str, Sequence[str]], *, context: Optional[_core.Context] = None) -> NDArray[float32]:
        """[texts, width]: one vector for each text, pooled as the model's folder says; as wide as the last dense
        layer of a sentence-transformers folder. Warns about texts that are longer than the model reads."""
        vectors: NDArray[float32]
        vectors, truncated = self._core._embed(_given.texts("embed: texts", texts), _given.context("embed", context))
        if truncated:
            which, tokens = truncated[0]
            warnings.warn(f"embed: {len(truncated)} of the texts {'is' if len(truncated) == 1 else 'are'} truncated to "
                          f"the {self._core.max_embed_tokens} tokens that the model reads; texts[{which}] has {tokens}",
                          stacklevel=2)
        return vectors

    @_renamed.keywords(**_RENAMED)
    def generate(self, prompts: Any, options: Optional[GenerateOptions] = None, *,
                 max_new_tokens: int = _default("max_new_tokens"),
                 temperature: float = _default("temperature"), top_k: Optional[int] = _default("top_k"),
                 top_p: float = _default("top_p"), min_p: float = _default("min_p"),
                 repetition_penalty: float = _default("repetition_penalty"),
                 repetition_window: Optional[int] = _default("repetition_window"), seed: int = _default("seed"),
                 num_beams: int = _default("num_beams"), length_penalty: float = _default("length_penalty"),
                 cache_type: str = _default("cache_type"), context_size: Optional[int] = _default("context_size"),
                 overflow: str = _default("overflow"), pinned: int = _default("pinned"), chat: bool = False,
                 system: Optional[str] = None, token: Optional[Callable[[int, int], Any]] = None,
                 details: bool = False, context: Optional[_core.Context] = None) -> Any:
        """Continues a prompt, or each of a list. Prompts are texts or lists of ids; answers are the same.
        token(prompt, id) is called as tokens come; if it returns true, generation ends.

        Defaults are those of `rapt generate`: at most 128 tokens, drawn at temperature 0.8; temperature=0
        always takes the most likely token. The same seed writes the same text. top_k=None keeps all tokens,
        repetition_window=None penalizes all.

        With chat=True prompts are questions to a model that was trained to chat, and system is the system
        message; it is one turn. context_size is how many tokens are seen at a time (None: as many as the model
        has trained positions, which RoPE and ALiBi do not limit). When it is full, overflow="stop" ends and
        overflow="slide" forgets the oldest tokens except the first `pinned`.

        options, a rapt.GenerateOptions, has max_new_tokens to pinned as one value; then those are left out.

        With details=True an answer is a rapt.Generated: text, ids, finish_reason and log_probability.
        """
        all_prompts, alone = _prompts(prompts)
        chat, details = _given.flag("generate: chat", chat), _given.flag("generate: details", details)
        self._check_chat(all_prompts, chat, system)
        text = any(isinstance(prompt, str) for prompt in all_prompts)
        if text and self.tokenizer is None:
            raise ValueError("generate: the model has no tokenizer, expected lists of ids")
        names = ["generate: prompts"] if alone else [f"generate: prompts[{i}]" for i in range(len(all_prompts))]
        ids = [self._prompt(_given.text(name, p), chat, system) if isinstance(p, str)
               else _given.ids(name, p, self.vocab_size) for name, p in zip(names, all_prompts)]
        if token is not None and not callable(token):
            raise TypeError(f"generate: token is {_given.said(token)}, expected a function token(prompt, id)")
        keywords = GenerateOptions(
            max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, repetition_window, seed, num_beams,
            length_penalty, cache_type, context_size, overflow, pinned)
        core_options = _options(keywords if options is None else _alone(options, keywords))
        self._warn(ids, chat, core_options)
        core_options.log_probability = details
        made = self._core._generate(ids, core_options, chat, token, _threads(context))
        answers = [self._answer(each, text, details) for each in made]
        return answers[0] if alone else answers

    def _answer(self, made: Any, text: bool, details: bool) -> Any:
        """An answer to a prompt, from (ids, finish_reason, log_probability)."""
        decoded = self.tokenizer.decode(made[0]) if self.tokenizer is not None and (text or details) else None
        if details:
            return Generated(decoded, *made)
        return decoded if text else made[0]

    def _prompt(self, text: str, chat: bool, system: Optional[str]) -> List[int]:
        """As `rapt generate` reads it."""
        ids: List[int] = self._core._chat(text, system) if chat else self._core._prompt(text)
        return ids

    def _check_chat(self, prompts: List[Any], chat: bool, system: Any) -> None:
        if not chat and system is not None:
            raise ValueError(f"generate: system is {_given.said(system)} without chat, expected chat=True")
        if system is not None:
            _given.text("generate: system", system)
        for i, prompt in enumerate(prompts if chat else []):
            if not isinstance(prompt, str):
                raise TypeError(f"generate: chat with prompts[{i}] {_given.said(prompt)}, expected a text: the user's "
                                "one question; the system message is system=")

    def _warn(self, prompts: List[List[int]], chat: bool, options: Any) -> None:
        """Warnings that `rapt generate` prints before it begins."""
        if chat and not self._core.has_chat_template:
            warnings.warn("generate: the model has no chat template; using ChatML, whose tokens it has", stacklevel=3)
        most = self._core.trained_context
        which, longest = max(enumerate(prompts), key=lambda each: len(each[1]), default=(0, []))
        if most is not None and most < options.max_context(len(longest)):
            written = "" if len(longest) > most else f" and up to {options.max_new_tokens} may follow"
            warnings.warn(f"generate: prompts[{which}] has {len(longest)} tokens{written}, the model was trained for "
                          f"{most}", stacklevel=3)

    def save(self, folder: Union[str, os.PathLike[str]], dtype: str = "f32") -> None:
        """Writes a new folder that Transformers loads with from_pretrained."""
        where = _given.path("save: folder", folder, "the path of a new folder")
        rounded = _given.word("save: dtype", dtype, "bf16")
        self._core.unpack()
        try:
            unused = self._core._save(where, rounded)
        finally:
            if not self._viewed:
                self._core.pack(_core.Context())
        if unused:
            more = f" and {len(unused) - 8} more" if len(unused) > 8 else ""
            warnings.warn(f"save: not written, since rapt does not use them: {', '.join(unused[:8])}{more}",
                          stacklevel=2)


def _alone(options: Any, keywords: GenerateOptions) -> GenerateOptions:
    """An options object, beside which every keyword has its default."""
    if not isinstance(options, GenerateOptions):
        raise TypeError(f"generate: options is {_given.said(options)}, expected a rapt.GenerateOptions")
    for field in dataclasses.fields(GenerateOptions):
        if getattr(keywords, field.name) != field.default:
            raise TypeError(f"generate: {field.name} is given beside a rapt.GenerateOptions, expected it inside: "
                            f"rapt.GenerateOptions({field.name}=...)")
    return options


def _options(given: GenerateOptions) -> Any:
    """The C++ library's GenerateOptions, which checks their ranges."""
    options = _core.GenerateOptions()
    for name in _COUNTS + _OPTIONAL_COUNTS:
        value = getattr(given, name)
        none = name in _OPTIONAL_COUNTS and value is None
        setattr(options, name, None if none else _given.whole(f"generate: {name}", value))
    for name in _NUMBERS:
        setattr(options, name, _given.real(f"generate: {name}", getattr(given, name)))
    options.seed = _given.whole("generate: seed", given.seed, 0, 2**64 - 1)
    options.cache_type = _given.word("generate: cache_type", given.cache_type, "bf16")
    options.overflow = _given.word("generate: overflow", given.overflow, "slide")
    return options


def _threads(context: Any) -> _core.Context:
    if hasattr(context, "__index__") and not isinstance(context, bool):
        raise TypeError(f"generate: context is {context} (int), expected None or a rapt.Context; how many tokens are "
                        f"seen is context_size={context}")
    return _given.context("generate", context)


def _prompts(given: Any) -> Tuple[List[Any], bool]:
    """A list of prompts, and whether it was a single one."""
    if isinstance(given, str):
        return [given], True
    prompts = _given.list_of("generate: prompts", given, "a text, a list of token ids, or a list of those")
    alone = bool(prompts) and not isinstance(prompts[0], str) and not hasattr(prompts[0], "__len__")
    return ([prompts], True) if alone else (prompts, False)
