"""rapt and PyTorch in other processes: either order of imports, programs that were saved, children, copies."""

import copy
import io
import multiprocessing
import pickle
import subprocess
import sys

import pytest
import torch

import rapt
from close import operands

pytestmark = pytest.mark.filterwarnings("ignore")

Q, K, V = operands(1, 2, 40, 8, grad=False)


def run(code):
    done = subprocess.run([sys.executable, "-W", "error::UserWarning:rapt", "-c", code], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rope = rapt.positions.Rope(8, scaling=rapt.positions.LinearRope(2.0))

    def forward(self, q, k, v):
        return rapt.attend(self.rope.apply(q), self.rope.apply(k), v, "causal")


@pytest.mark.parametrize("imports", ["import torch, rapt", "import rapt, torch", "import rapt, numpy, transformers",
                                     "import importlib.util, rapt; importlib.util.find_spec('torch'); import torch"])
def test_saved_programs_run_where_rapt_and_torch_are_imported(imports, tmp_path):
    torch.export.save(torch.export.export(Model(), (Q, K, V)), tmp_path / "exported.pt2")
    torch.jit.save(torch.jit.trace(Model(), (Q, K, V)), tmp_path / "traced.pt")
    torch.save((Q, K, V, Model()(Q, K, V)), tmp_path / "numbers.pt")
    assert "fine" in run(f"""
{imports}
import torch
*x, expected = torch.load({str(tmp_path / "numbers.pt")!r})
assert torch.equal(torch.export.load({str(tmp_path / "exported.pt2")!r}).module()(*x), expected)
assert torch.equal(torch.jit.load({str(tmp_path / "traced.pt")!r})(*x), expected)
print("fine")
""")


def test_importing_rapt_imports_no_torch_and_hinders_none():
    assert "fine" in run("""
import sys, rapt
assert "torch" not in sys.modules
before = list(sys.meta_path)
import torch
assert len(sys.meta_path) == len(before) - 1, "the hook has gone"
assert hasattr(torch.ops.rapt, "attend")
print("fine")
""")


def in_child(pipe, model):
    q = torch.ones(1, 2, 40, 8, requires_grad=True)
    out = model(q, q, q)
    out.sum().backward()
    pipe.send((out.detach().numpy().tobytes(), q.grad.numpy().tobytes()))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_attend_and_differentiate(method):
    model = Model()
    q = torch.ones(1, 2, 40, 8, requires_grad=True)
    out = model(q, q, q)
    out.sum().backward()
    context = multiprocessing.get_context(method)
    mine, theirs = context.Pipe()
    child = context.Process(target=in_child, args=(theirs, model))  # spawn pickles the model
    child.start()
    assert mine.poll(120), "the child hangs"
    assert mine.recv() == (out.detach().numpy().tobytes(), q.grad.numpy().tobytes())
    child.join(60)
    assert child.exitcode == 0


def test_modules_with_ropes_and_patterns_can_be_copied():
    model = Model()
    model.pattern, model.plan = rapt.causal() & rapt.window(9, 0), rapt.Plan("causal", 40)
    model.bias = rapt.alibi(Q[0, :, 0, 0])
    named = rapt.and_masks(rapt.flex.causal, rapt.flex.sliding_window(3))
    model.mask = rapt.create_block_mask(named, None, None, 40, 40)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert torch.equal(other(Q, K, V), model(Q, K, V))
        assert other.pattern == model.pattern and other.mask.patterns == model.mask.patterns
        assert torch.equal(rapt.attend(Q, K, V, other.plan, bias=other.bias),
                           rapt.attend(Q, K, V, model.plan, bias=model.bias))


def test_importing_rapt_loads_no_compiler():
    assert "fine" in run("""
import sys, torch, rapt
assert hasattr(torch.ops.rapt, "attend") and "torch._dynamo" not in sys.modules
print("fine")
""")
