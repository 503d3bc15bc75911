"""Objectives over blocks: targets, the largest variance, and a user's own convex loss.

`targets` and `loss` are the two ways in; the other modules are what they share.
"""

from residua.methods.scales.loss import Loss, block_loss
from residua.methods.scales.targets import block_targets

__all__ = ["Loss", "block_loss", "block_targets"]
