"""Lower bounds on the total weighted variance of any unbiased mechanism at privacy cost 1.

`svd <= supreme_svd <= dual <= optimum`, the second up to the 1e-5 to which `dual` is solved (claims B-001
to B-004), and `product_dual <= optimum` for domains of any size (B-006 to B-008), `tree <= optimum` for
counts of the nodes of a hierarchy of any size (T-006). Divide by the privacy cost
for another budget.
"""

from residua.bounds.alone import product_weights
from residua.bounds.product import product_dual, product_dual_or_nothing
from residua.bounds.quick import quick_bound
from residua.bounds.singular import dual, supreme_svd, svd, svd_or_nothing
from residua.bounds.trees import tree

__all__ = [
    "dual",
    "product_dual",
    "product_dual_or_nothing",
    "product_weights",
    "quick_bound",
    "supreme_svd",
    "svd",
    "svd_or_nothing",
    "tree",
]
