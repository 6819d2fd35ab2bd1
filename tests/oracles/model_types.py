"""attn_implementation="rapt" against eager attention, for every model type of Transformers.

    .venv/bin/python tests/oracles/model_types.py            # all, writes model_types.csv
    .venv/bin/python tests/oracles/model_types.py llama bert # these, prints them

Each type is a tiny model with random weights in a process of its own. What rapt gives is compared with
eager attention in f64. It may be off by four times what eager attention in f32 is off, and by 16
roundings of the largest number where that is nothing. If it is off by more, eager attention gets three
more tries with its weights changed by a rounding each: some models amplify roundings, and one try says
little about how much.
"""

import copy
import json
import os
import re
import signal
import sys
import warnings

import torch
import transformers
from transformers import masking_utils

import tiny_models
from model_table import CHECKS, summary, write_table
from tiny_models import TOKENS

LARGEST, SECONDS = 80e6, 240
REFUSALS = ("rapt attention:", "attn_implementation=", "accelerate:")


class NothingToTest(Exception):
    """The model has no such thing."""


class NotTested(Exception):
    """The tiny model or its inputs do not work without rapt."""


class Different(Exception):
    pass


def mask_for_f64(*args, dtype=torch.float32, **kwargs):
    """Eager attention has its softmax in f32 whatever it is given, where the smallest f64 is -inf and
    a row of it NaN; this one is hidden as well."""
    mask = masking_utils.eager_mask(*args, dtype=torch.float32 if dtype == torch.float64 else dtype,
                                    **kwargs)
    return None if mask is None else mask.to(dtype)


def register():
    """How often rapt's attention is called, by the name that the models use."""
    import rapt.integrations.transformers
    from rapt.integrations.transformers.register import attention_forward
    from transformers import AttentionInterface, AttentionMaskInterface

    rapt.integrations.transformers.register()
    AttentionMaskInterface.register("eager", mask_for_f64)
    calls = []

    def counted(*args, **kwargs):
        calls.append(1)
        return attention_forward(*args, **kwargs)
    AttentionInterface.register("rapt", counted)
    return calls


def short(error):
    text = re.sub(r" from '/[^']*'?", "", " ".join(str(error).split())) or type(error).__name__  # no paths
    return f"{type(error).__name__}: {text}"[:160]


def sharpen(model):
    """Weights that make attention matter: what comes out of a layer is as large as what went in."""
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.normal_(0, p[0].numel() ** -0.5, generator=draw)
            else:
                p.add_(torch.randn(p.shape, generator=draw).to(p.dtype), alpha=0.1)


class Models:
    """The same weights three times: rapt and eager in f32, eager in f64."""

    def __init__(self, kind, model_class, decoder=False):
        try:
            config = self._build_eager(kind, model_class, decoder)
        except NotTested:
            raise
        except Exception as error:
            raise NotTested(f"no tiny model: {short(error)}") from error
        torch.manual_seed(0)
        self.mine = model_class._from_config(config, attn_implementation="rapt").eval()
        self.mine.load_state_dict(self.eager.state_dict())
        self.tries = []

    def _build_eager(self, kind, model_class, decoder):
        """Everything but rapt's model, of which it returns the configuration."""
        config = tiny_models.tiny_config(kind)
        if decoder and getattr(config, "is_decoder", True) is False:
            config.is_decoder = True
        torch.manual_seed(0)
        self.eager = model_class._from_config(copy.deepcopy(config), attn_implementation="eager")
        if sum(p.numel() for p in self.eager.parameters()) > LARGEST:
            raise NotTested("the smallest configuration is too large")
        sharpen(self.eager.eval())
        self.exact = copy.deepcopy(self.eager).double()
        self.given = tiny_models.inputs(self.eager, torch.Generator().manual_seed(1))
        self._turn_features()
        return config

    def _turn_features(self):
        """Spectrograms have their bins first or last; the model knows."""
        if "input_features" in self.given:
            try:
                with torch.no_grad():
                    self.eager(**self.given)
            except Exception:
                self.given["input_features"] = self.given["input_features"].mT.contiguous()

    def rounded(self, seed):
        """Eager attention with every weight one rounding up or down."""
        model, draw = copy.deepcopy(self.eager), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + torch.randint(-1, 2, p.shape, generator=draw) * torch.finfo(p.dtype).eps)
        return model

    def each(self, run, **changes):
        """run(model, inputs) by rapt, by eager attention in f32 (a list) and in f64; an error of eager
        attention means nothing for rapt."""
        given = {**self.given, **changes}
        exact = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v
                 for k, v in given.items()}
        try:
            eager = []
            for model in (self.eager, *self.tries):
                torch.manual_seed(3)
                eager.append(run(model, given))
        except Exception as error:
            raise NotTested(f"fails in eager too: {short(error)}") from error
        torch.manual_seed(3)
        mine = run(self.mine, given)
        try:
            torch.manual_seed(3)
            true = run(self.exact, exact)
        except Exception:  # some models are in f32 whatever they are told
            true = eager[0]
        return mine, eager, true


def tensors(output, path=""):
    """Every floating-point tensor of an output, by name."""
    if torch.is_tensor(output):
        return {path: output} if output.is_floating_point() else {}
    if hasattr(output, "items"):
        output = output.items()
    elif isinstance(output, (list, tuple)):
        output = enumerate(output)
    else:
        return {}
    return {k: v for name, part in output for k, v in tensors(part, f"{path}.{name}").items()}


def compare(mine, eager, true, weights=False):
    """Attention weights apart from everything else: some models return them unasked from eager
    attention alone."""
    mine, true, *eager = ({k: v for k, v in tensors(x).items() if weights == ("attentions" in k)}
                          for x in (mine, true, *eager))
    if mine.keys() != eager[0].keys():
        raise Different(f"outputs {sorted(mine.keys() ^ eager[0].keys())[:4]} on one side only")
    if not mine:
        raise NothingToTest("no floating-point outputs")
    if all(not x.isfinite().any() for x in eager[0].values()):
        raise NotTested("eager attention gives no finite number")
    for name, x in mine.items():
        y = eager[0][name]
        if x.shape != y.shape:
            raise Different(f"{name.lstrip('.')} has shape {list(x.shape)}, eager {list(y.shape)}")
        if x.numel():
            z = true[name] if name in true and true[name].shape == y.shape else y
            _compare(name.lstrip("."), *(t.detach().double() for t in (
                x, z, *(one[name] for one in eager))))


def _compare(name, x, z, *eager):
    known = eager[0].isfinite()
    if not x[known].isfinite().all():
        raise Different(f"{name} is not finite where eager is")
    if not known.any():
        return
    z = torch.where(z.isfinite(), z, eager[0])[known]
    rounding = max((y[known] - z).abs().max() for y in eager)
    bound = 4 * rounding + 16 * torch.finfo(torch.float32).eps * z.abs().max()
    off = (x[known] - z).abs().max()
    if off > bound:
        raise Different(f"{name} differs by {off:.1e}, at most {bound:.1e} is rounding")


def forward(models):
    with torch.no_grad():
        compare(*models.each(lambda model, given: model(**given)))


def padded(side):
    def check(models):
        if "attention_mask" not in models.given:
            raise NothingToTest("takes no attention_mask")
        mask = models.given["attention_mask"].clone()
        mask[1, slice(None, 4) if side == "left" else slice(-4, None)] = 0
        with torch.no_grad():
            compare(*models.each(lambda model, given: model(**given), attention_mask=mask))
    return check


def generated(**how):
    def check(models):
        if not models.eager.can_generate():
            raise NothingToTest("does not generate")
        mask = models.given.get("attention_mask")
        if mask is not None:
            mask = mask.clone()
            mask[1, :4] = 0

        def run(model, given):
            given = {k: v for k, v in given.items() if k != "decoder_input_ids"}
            return model.generate(
                **given, **how, max_new_tokens=4, min_new_tokens=4, do_sample=False, eos_token_id=None,
                pad_token_id=0, return_dict_in_generate=True, output_logits=True)
        mine, eager, true = models.each(run, **({} if mask is None else {"attention_mask": mask}))
        if any(not torch.equal(x.sequences, true.sequences) for x in eager):
            raise NotTested("rounding alone changes the tokens")
        if not torch.equal(mine.sequences, true.sequences):
            raise Different("other tokens")
        compare(list(mine.logits), [list(x.logits) for x in eager], list(true.logits))
    return check


def gradients(models):
    """With padding at the end, where every row sees a key. Eager attention sends gradients through
    the equal weights of a row that sees none, though its output does not depend on the scores."""
    mask = models.given.get("attention_mask")
    changes = {}
    if mask is not None:
        changes["attention_mask"] = mask.clone()
        changes["attention_mask"][1, -4:] = 0

    def run(model, given):
        model.zero_grad()
        out = next(x for x in tensors(model(**given)).values() if x.requires_grad)
        if changes and out.shape[:2] == (2, TOKENS):
            out = out[given["attention_mask"].bool()]  # of padding nobody asks
        out.square().sum().backward()
        return {"all": torch.cat([p.grad.flatten() for p in model.parameters()
                                  if p.grad is not None])}
    compare(*models.each(run, **changes))


def attentions(models):
    def run(model, given):
        found = model(**given, output_attentions=True)
        return {k: v for k, v in tensors(found).items() if "attentions" in k}
    with torch.no_grad():
        mine, eager, true = models.each(run)
    if not eager[0]:
        raise NothingToTest("eager gives no attention weights")
    compare(mine, eager, true, weights=True)


RUN = {"forward": forward, "padded left": padded("left"), "padded right": padded("right"),
       "dynamic cache": generated(), "static cache": generated(cache_implementation="static"),
       "beams": generated(num_beams=3), "gradients": gradients, "attentions": attentions}


def verdict(check, models):
    try:
        try:
            check(models)
        except Different:
            models.tries = [models.rounded(seed) for seed in (5, 6, 7)]
            check(models)
        return "pass"
    except (NothingToTest, NotTested) as error:
        return reason_of(error)
    except Different as error:
        return f"DIFFERENT: {error}"
    except Exception as error:
        return refused(error) or f"ERROR: {short(error)}"


def reason_of(error):
    return f"{'not tested' if isinstance(error, NotTested) else 'nothing to test'}: {error}"


def refused(error):
    """rapt's own refusal as a verdict, None if it is another error."""
    if isinstance(error, ValueError) and str(error).startswith(REFUSALS):
        return f"refused: {' '.join(str(error).split()).split(';')[0]}"
    return None


def build(kind, model_class, decoder):
    """Models, or the verdict if there are none. Without an eager model rapt's may still be refused;
    with one, whatever else rapt raises is a failure."""
    try:
        return Models(kind, model_class, decoder)
    except NotTested as error:
        return refusal(kind, model_class) or reason_of(error)
    except Exception as error:
        return refused(error) or f"ERROR: {short(error)}"


def refusal(kind, model_class):
    """Of a model in its usual size, without weights; None if it is not refused."""
    try:
        with torch.device("meta"):
            model_class._from_config(kind(), attn_implementation="rapt")
    except Exception as error:
        return refused(error)
    return None


def walk(model_type, calls):
    """{check: verdict} of a type; None if Transformers has no model for it."""
    kind = transformers.CONFIG_MAPPING[model_type]
    try:
        plain, generating = tiny_models.model_classes(kind)
    except Exception as error:
        return dict.fromkeys(CHECKS, f"not tested: no tiny model: {short(error)}")
    if plain is None:
        return None
    models = build(kind, plain, decoder=False)
    if isinstance(models, str):
        return {"class": plain.__name__, **dict.fromkeys(CHECKS, models)}
    found = {"class": plain.__name__}
    for name, check in RUN.items():
        if name == "dynamic cache" and generating not in (None, plain):
            models = build(kind, generating, decoder=True)
        found[name] = models if isinstance(models, str) else verdict(check, models)
        if name == "beams" and generating not in (None, plain):
            models = build(kind, plain, decoder=False)
        if name == "forward" and found[name] == "pass" and not calls:
            reason = "nothing to test: no attention that attn_implementation reaches"
            return {"class": plain.__name__, **dict.fromkeys(CHECKS, reason)}
    return found


def walk_apart(model_type, calls):
    """In a process of its own, for a model may take forever or all memory."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.close(read)
        try:
            found = walk(model_type, calls)
        except BaseException as error:
            found = dict.fromkeys(CHECKS, f"ERROR: {short(error)}")
        with os.fdopen(write, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else dict.fromkeys(CHECKS, ending(status))


def ending(status):
    """The verdict on a process that ended without one."""
    if not os.WIFSIGNALED(status):
        return f"ERROR: the process ended with status {os.waitstatus_to_exitcode(status)}"
    if os.WTERMSIG(status) == signal.SIGALRM:
        return f"time-out: nothing after {SECONDS} s"
    return f"ERROR: the process was ended by {signal.Signals(os.WTERMSIG(status)).name}"


def main(names):
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    calls, rows = register(), []
    for model_type in names or tiny_models.model_types():
        found = walk_apart(model_type, calls)
        if found is not None:
            rows.append({"model type": model_type, **found})
            print(json.dumps(rows[-1]), flush=True)
    print(summary(rows))
    if not names:
        write_table(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
