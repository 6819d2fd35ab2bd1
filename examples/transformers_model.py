#!/usr/bin/env python3
"""A model of Transformers with attn_implementation="rapt": logits, gradients and text as in eager attention.

    python3 examples/transformers_model.py

The model is tiny and its weights are random, so that nothing is downloaded. Any other works alike:

    transformers.AutoModelForCausalLM.from_pretrained("...", attn_implementation="rapt")
"""

import copy
import sys

import torch
import transformers

import rapt.integrations.transformers


def models():
    """The same weights twice: with Transformers' eager attention and with rapt's."""
    config = transformers.MistralConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=16, pad_token_id=0)
    torch.manual_seed(0)
    eager = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager")
    mine = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="rapt")
    mine.load_state_dict(eager.state_dict())
    return eager.eval(), mine.eval()


def run(model, batch):
    """Logits, and the gradient of the loss with respect to the embedding."""
    output = model(**batch)
    output.loss.backward()
    return output.logits.detach(), model.get_input_embeddings().weight.grad


def main():
    rapt.integrations.transformers.register()
    eager, mine = models()

    ids = torch.randint(1, 100, (2, 200))
    lengths = torch.tensor([[200], [150]])  # the second is padded
    mask = (torch.arange(200) < lengths).long()
    batch = {"input_ids": ids * mask, "attention_mask": mask, "labels": ids.where(mask == 1, -100)}
    results = zip(run(eager, batch), run(mine, batch))
    logits, gradients = ((a - b).abs().max().item() for a, b in results)
    print(f"largest difference from eager attention: logits {logits:.1e}, gradients {gradients:.1e}")

    prompt = {"input_ids": ids[:1, :50], "attention_mask": mask[:1, :50]}
    texts = [model.generate(**prompt, max_new_tokens=20, do_sample=False)[0, 50:] for model in (eager, mine)]
    same = torch.equal(*texts)
    print(f"generated ids: {texts[1].tolist()}")
    print(f"the same as with eager attention: {same}")
    return 0 if logits < 1e-4 and gradients < 1e-4 and same else 1


if __name__ == "__main__":
    sys.exit(main())
