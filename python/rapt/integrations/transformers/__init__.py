"""Hugging Face Transformers: attn_implementation="rapt", and Longformer, LED, Reformer and BigBird
with rapt's attention inside. Tested with Transformers 5.22."""

from rapt.integrations.transformers.accelerate import accelerate
from rapt.integrations.transformers.register import register

__all__ = ["accelerate", "register"]
