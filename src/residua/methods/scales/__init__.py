"""Objectives over blocks: targets, the largest variance, and a user's own convex loss.

`targets` and `loss` are the two ways in; the other modules are what they share.
"""
