"""Attention and what a call of it is made of. Use the names of the rapt package.

attend      attend, attend_backward, explain
options     Attention: the options of a call
results     what calls return
bias        what is added to the logits
patterns    which keys a query sees
plan        a pattern compiled for given lengths
cache       keys and values of growing sequences
longformer, bigbird, reformer   attention with an algorithm of its own
"""
