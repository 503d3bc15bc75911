"""Centred blocks on different attributes: answers are sums of independent pieces (claim A-004)."""
