"""One block: a Kronecker product of matrices on disjoint attributes (claim A-002)."""
