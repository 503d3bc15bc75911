"""Optimised splits of queries into pieces on blocks (claims Q-001 to Q-008)."""
