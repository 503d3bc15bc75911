"""A release recomputed from its file alone, by code that planning and answering do not share.

The cost is the kernel's. Variances and spans start from the measured matrices and from the queries, row by
row (`variances`); the lower bound of the certificate from the queries alone (`bound`). `checking` compares
all of it with what the file states, and lists what it could not recompute. Claims: docs/math/evidence.md.
"""

from residua.verify.checking import Check, Verdict, Verification, verify

__all__ = ["Check", "Verdict", "Verification", "verify"]
