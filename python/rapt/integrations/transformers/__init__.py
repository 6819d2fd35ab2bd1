"""Hugging Face Transformers: attn_implementation="rapt", and Longformer, LED, Reformer, BigBird,
BigBird-Pegasus and Pegasus-X with rapt's attention. Tested with Transformers 5.23."""

from rapt.integrations.transformers.accelerate import accelerate
from rapt.integrations.transformers.register import register

__all__ = ["accelerate", "register"]
