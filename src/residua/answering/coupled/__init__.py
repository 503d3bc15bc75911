"""Blocks that overlap, answered by least squares over all of them (claims O-001 to O-004)."""
