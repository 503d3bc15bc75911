"""Products over the same axes whose Gram matrices have a common diagonal form (claim H-030)."""
