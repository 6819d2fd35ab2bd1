"""Models that others trained, and those of `rapt train`: read, run, write."""

from __future__ import annotations

import operator
import os
import sys
import warnings

from rapt import _core

Tokenizer = getattr(_core, "Tokenizer", None)


def load(path, weights="stored", allow_non_finite=False):
    """Reads a model: a folder of Hugging Face's, a GGUF file, a run of `rapt train`, or a name such
    as "minilm" or "smollm2" that an installed package stands for.

    weights is what matrices are kept as: "stored" (few bits stay few bits, bf16 stays bf16, all
    else is f32), "f32", "bf16", "q8_0", "q4_0" or "q4_1". A model of others with weights that are infinite or NaN is refused
    unless allow_non_finite says otherwise.
    """
    if Tokenizer is None:
        raise RuntimeError("load: rapt was built without models; install what scripts/setup names and "
                           "build it again")
    model = _core.load(os.fspath(path), weights, [folder for folder in sys.path if folder],
                       allow_non_finite)
    for line in model.notices:
        warnings.warn(line, stacklevel=2)
    return Model(model)


class Model:
    """A Transformer with its tokenizer. Arrays are numpy's.

    tokenizer is None for models of tasks, whose prompts are lists of ids.
    """

    def __init__(self, core):
        self._core = core
        self.tokenizer = core.tokenizer
        self._viewed = False
        core.pack(_core.Context())  # few tokens are faster; no memory is added

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
        self._viewed = True  # and its matrices stay where they are from now on
        views = self._core.parameters(framework)
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
        return self._core._forward(_ids(sequences), None if sources is None else _ids(sources), logits,
                                   context or _core.Context())

    def embed(self, texts, *, context=None):
        """[texts, width]: one vector for each text, as the model's folder says."""
        return self._core._embed([texts] if isinstance(texts, str) else list(texts),
                                 context or _core.Context())

    def generate(self, prompts, *, tokens=128, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0,
                 repetition=1.0, seed=0, beams=1, cache="f32", token=None, context=None):
        """Goes on from a prompt, or from each of a list. Prompts are texts, or lists of ids, and so
        are the answers. token(prompt, id) is called as tokens come; true ends the writing."""
        alone = isinstance(prompts, str) or (len(prompts) > 0 and hasattr(prompts[0], "__index__"))
        asked = [prompts] if alone else list(prompts)
        text = any(isinstance(prompt, str) for prompt in asked)
        if text and self.tokenizer is None:
            raise ValueError("generate: the model has no tokenizer, expected lists of ids")
        ids = [self._prompt(p) if isinstance(p, str) else _ids([p])[0] for p in asked]
        options = _core.generate_options(tokens, temperature, top_k, top_p, min_p, repetition, seed,
                                         beams, cache)
        made = self._core._generate(ids, options, token, context or _core.Context())
        answers = [self.tokenizer.decode(i) for i in made] if text else made
        return answers[0] if alone else answers

    def _prompt(self, text):
        """As `rapt generate` reads it."""
        return self._core._prompt(text)

    def save(self, folder, dtype="f32"):
        """Writes a new folder that Transformers loads with from_pretrained."""
        self._core.unpack()
        try:
            self._core._save(os.fspath(folder), dtype)
        finally:
            if not self._viewed:
                self._core.pack(_core.Context())


def _ids(sequences):
    return [[operator.index(i) for i in sequence] for sequence in sequences]
