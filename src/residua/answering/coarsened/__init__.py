"""Blocks that see classes of cells, alone or beside blocks that see cells (claim H-041)."""
