"""rapt.heads on real weights: the attention that Transformers says it computed, head by head."""

import pathlib

import numpy
import pytest
import torch
import transformers

import rapt
from rapt._find_model import find_model

TEXT = (pathlib.Path(__file__).parents[3] / "README.md").read_text()
TOKENS = 192
# Both compute in f32, through up to 30 layers, in different orders.
TOLERANCE = 2e-4


def found(name):
    try:
        return pathlib.Path(find_model(name))
    except RuntimeError as error:
        pytest.skip(str(error))


def theirs_of(model, ids):
    with torch.no_grad():
        attentions = model(torch.tensor([ids]), output_attentions=True).attentions
    return [head.double().numpy() for layer in attentions for head in layer[0]]


def mean_mass(p, may):
    return (p * may).sum(1).mean()


def check(report, theirs, tokens):
    assert len(report.heads["head"]) == len(theirs)
    i, j = numpy.mgrid[:tokens, :tokens]
    far = abs(i - j)
    for h, p in enumerate(theirs):
        row = {name: column[h] for name, column in report.heads.items()}
        entropy = -(p * numpy.log(numpy.maximum(p, 1e-300))).sum(1).mean()
        norm = numpy.sqrt([((numpy.diag(r) - numpy.outer(r, r)) ** 2).sum() for r in p]).mean()
        expected = {"entropy": entropy, "largest": p.max(1).mean(), "sink_mass": p[:, 0].mean(),
                    "jacobian_norm": norm, "favourite_mass": p.mean(0).max(), "distance": (p * far).sum(1).mean()}
        for name, value in expected.items():
            assert abs(row[name] - value) <= TOLERANCE * max(1, abs(value)), (h, name, row[name], value)
        pinned = (i < 4) | (j < 4)
        for distance, kept, more in zip(report.data["distances"], row["within"], row["within_pinned"]):
            assert abs(kept - mean_mass(p, far <= distance)) <= TOLERANCE, (h, distance)
            assert abs(more - mean_mass(p, (far <= distance) | pinned)) <= TOLERANCE, (h, distance)
        for share, reach in ((0.5, row["reach50"]), (0.9, row["reach90"]), (0.99, row["reach99"])):
            assert mean_mass(p, far <= reach) >= share - TOLERANCE
            assert reach == 0 or mean_mass(p, far <= reach - 1) < share + TOLERANCE
        assert numpy.abs(report.map(row["layer"], row["head"]) - p).max() <= 50 * TOLERANCE
        first = h - row["head"]
        for other, cosine in enumerate(row["similarity"]):
            q = theirs[first + other]
            expected = (p * q).sum() / numpy.sqrt((p * p).sum() * (q * q).sum())
            assert abs(cosine - expected) <= TOLERANCE, (h, other)


def test_minilm():
    folder = found("minilm")
    ours = rapt.load(folder)
    theirs = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids = ours.tokenizer.encode(TEXT)[:TOKENS]
    check(rapt.heads(ours, ids=ids, trials=False), theirs_of(theirs, ids), TOKENS)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    ours = rapt.load(found("smollm2"), weight_type="f32")
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    ours.save(folder)
    return ours, transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def test_smollm2(smollm2):
    ours, theirs = smollm2
    ids = ours.tokenizer.encode(TEXT)[:TOKENS]
    check(rapt.heads(ours, ids=ids, trials=False), theirs_of(theirs, ids), TOKENS)


def test_a_window_costs_what_a_mask_costs(smollm2):
    """The loss of a trial, against Transformers with the same keys masked."""
    ours, theirs = smollm2
    ids = ours.tokenizer.encode(TEXT)[:TOKENS]
    report = rapt.heads(ours, ids=ids, maps=False)
    i, j = numpy.mgrid[:TOKENS, :TOKENS]
    for name, window, loss in zip(report.trials["name"], report.trials["window"], report.trials["loss"]):
        if window is None:
            continue
        near = i - j <= window
        may = (j <= i) & ((near | (j < 4) | (i < 4)) if "first" in name else near)
        mask = torch.where(torch.from_numpy(may), 0.0, torch.finfo(torch.float32).min)[None, None]
        with torch.no_grad():
            logits = theirs(torch.tensor([ids]), attention_mask=mask).logits[0].double()
        expected = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()
        assert abs(loss - expected) <= 1e-3 * expected, (name, loss, expected)
