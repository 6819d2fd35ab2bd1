"""rapt for PyTorch tensors: operators with gradients, for graphs and transforms. This file imports no torch.

import_hook  imports `functions` as soon as torch and rapt are both imported
functions    what rapt's functions call for tensors
attend, longformer, blocks, flash, positions   operators
operator     gradients and vmap of an operator
options      the options of a call as text, which graphs can hold
modes        traces, transforms, gradients and autocast
seeds        seeds of dropout
"""
