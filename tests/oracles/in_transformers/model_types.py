"""attn_implementation="rapt" against eager attention, for every model type of Transformers.

    .venv/bin/python -m pip install -r tests/oracles/in_transformers/walk.txt
    .venv/bin/python tests/oracles/in_transformers/model_types.py            # all, writes model_types.csv
    .venv/bin/python tests/oracles/in_transformers/model_types.py llama bert # these, prints them

Each type is a tiny model with random weights in a process of its own. What rapt gives is compared with
eager attention in f64. It may be off by four times what eager attention in f32 is off, and by 16
roundings of the largest number where that is nothing. If it is off by more, eager attention gets three
more tries with its weights changed by a rounding each: some models amplify roundings, and one try says
little about how much.
"""

import copy
import json
import os
import signal
import sys
import warnings

import torch
import transformers
from transformers import masking_utils

import tiny_inputs
import tiny_models
from attention_modules import Reached
from model_comparison import Different, NothingToTest, NotTested, compare, short, tensors
from model_table import CHECKS, MODULES, summary, write_counts, write_table

LISTENING = []  # a Reached for each model of rapt
LARGEST, SECONDS = 80e6, 240
REFUSALS = ("rapt attention:", "attn_implementation=", "accelerate:")


def mask_for_f64(*args, dtype=torch.float32, **kwargs):
    """Eager attention has its softmax in f32 whatever it is given, where the smallest f64 is -inf and
    a row of it NaN; this one is hidden as well."""
    mask = masking_utils.eager_mask(*args, dtype=torch.float32 if dtype == torch.float64 else dtype,
                                    **kwargs)
    return None if mask is None else mask.to(dtype)


def register():
    """Which modules rapt's attention is called for, by the name that the models use."""
    import rapt.integrations.transformers
    from rapt.integrations.transformers.register import attention_forward
    from transformers import AttentionInterface, AttentionMaskInterface

    rapt.integrations.transformers.register()
    AttentionMaskInterface.register("eager", mask_for_f64)
    calls = []

    def counted(module, *args, **kwargs):
        calls.append(module)
        for reached in LISTENING:
            reached.call(module)
        return attention_forward(module, *args, **kwargs)
    AttentionInterface.register("rapt", counted)
    return calls


def sharpen(model):
    """Weights that make attention matter: what comes out of a layer is as large as what went in."""
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1 and p.numel():
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
        self.reached = Reached(self.mine)
        LISTENING.append(self.reached)

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
        try:
            self.given, self.complaint = tiny_inputs.fitting(self.eager)
        except Exception as error:
            raise NotTested(f"no inputs: {short(error)}") from error
        return config

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
        if changes and out.shape[:2] == given["attention_mask"].shape:
            out = out[given["attention_mask"].bool()]  # padding is not compared
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
        return all_checks(f"not tested: no tiny model: {short(error)}")
    if plain is None:
        return None
    models = first = build(kind, plain, decoder=False)
    found = {"class": plain.__name__}
    if isinstance(models, str):
        return {**found, **all_checks(models)}
    built = [models]
    for name, check in RUN.items():
        if name == "dynamic cache" and generating not in (None, plain):
            models = build(kind, generating, decoder=True)
            built.append(models)
        found[name] = models if isinstance(models, str) else verdict(check, models)
        if name == "beams":
            models = first
        if name == "forward" and found[name] == "pass" and not calls:
            return {**found, **all_checks(
                "nothing to test: no attention that attn_implementation reaches")}
    return {**found, MODULES: modules_verdict([x for x in built if not isinstance(x, str)])}


def modules_verdict(built):
    """Of the models of a type together: in part if one of them is."""
    found = [models.reached.verdict(models.complaint) for models in built]
    return next((x for x in found if x.startswith("in part")), found[0])[:240]


def all_checks(found):
    return dict.fromkeys([MODULES, *CHECKS], found)


def walk_apart(model_type, calls):
    """In a process of its own, for a model may take forever or all memory."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of work: the machine may stop it meanwhile
        os.close(read)
        try:
            found = walk(model_type, calls)
        except BaseException as error:
            found = all_checks(f"ERROR: {short(error)}")
        with os.fdopen(write, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else all_checks(ending(status))


def ending(status):
    """The verdict on a process that ended without one."""
    if not os.WIFSIGNALED(status):
        return f"ERROR: the process ended with status {os.waitstatus_to_exitcode(status)}"
    if os.WTERMSIG(status) == signal.SIGPROF:
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
        write_counts(summary(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
