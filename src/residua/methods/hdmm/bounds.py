"""What is proved about strategies with either law of noise."""

from residua.bounds import svd_or_nothing
from residua.methods.draft import Scope
from residua.privacy import NoiseLaw
from residua.workload import Workload


def lower_bound(work: Workload, law: NoiseLaw) -> tuple[float, Scope]:
    """A bound at Gaussian cost 1 and for whom it holds; for Laplace noise see claim H-003."""
    return svd_or_nothing(work), scope_of(law)


def scope_of(law: NoiseLaw) -> Scope:
    """For whom a bound on strategies with this noise holds."""
    return "all Laplace noise" if law == "laplace" else "all mechanisms"
