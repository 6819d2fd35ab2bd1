"""A run that takes a moment, for scripts that test what happens around it."""

MODEL = ("data.tokens=16", "data.eval_batches=1", "model.hidden_size=16", "model.layers=1", "model.heads=2",
         "model.positions=learned", "model.max_positions=64")


def flags(*keys):
    """Of `rapt train`: the small model, and what else it is told."""
    return [word for key in (*keys, *MODEL) for word in ("--set", key)]


def make(rapt, home, flags):
    """Trains on a text and converts the run, by `rapt(*arguments)`; the paths of text, run and model."""
    text, run, model = home / "text.txt", home / "whole", home / "model"
    text.write_text("the cat sat on the mat and looked at the hat.\n" * 100)
    for arguments in (["train", "--data", text, "--out", run, *flags], ["convert", run, model]):
        done = rapt(*arguments)
        assert done.returncode == 0, done.stderr
    return text, run, model
