"""The methods of HDMM and the strategies it is compared with, by name, for either law of noise."""

from collections.abc import Callable, Sequence

from residua.errors import Infeasible
from residua.methods.baselines import (
    baseline,
    datacube,
    eigen_design,
    greedy_tree,
    hb_matrix,
    hierarchical_matrix,
    identity_matrix,
    wavelet_matrix,
    workload_itself,
)
from residua.methods.draft import Draft, Progress
from residua.methods.hdmm.kron import kron, nested, union
from residua.methods.hdmm.marginals import marginals
from residua.privacy import NoiseLaw
from residua.workload import Workload
from residua.workload.union import one_wide_product

Method = Callable[[Workload, float, Progress | None], Draft]
Kind = Callable[[Workload, NoiseLaw, Progress | None], Draft]

UNIONS: tuple[Kind, ...] = (nested, union)


def hdmm_methods(law: NoiseLaw) -> dict[str, Method]:
    """The methods that plan noise of this law."""
    return {
        "hdmm": lambda work, gap, progress: hdmm(work, law, progress),
        "hdmm-kron": lambda work, gap, progress: kron(work, law, progress),
        "hdmm-union": lambda work, gap, progress: best_of(UNIONS, work, law, progress),
        "hdmm-marginals": lambda work, gap, progress: marginals(work, law, progress),
        "identity": lambda work, gap, progress: baseline(work, identity_matrix, law),
        "hierarchical": lambda work, gap, progress: baseline(work, hierarchical_matrix, law),
        "hb": lambda work, gap, progress: baseline(work, hb_matrix, law),
        "wavelet": lambda work, gap, progress: baseline(work, wavelet_matrix, law),
        "greedy": lambda work, gap, progress: greedy_tree(work, law),
        "eigen": lambda work, gap, progress: eigen_design(work, law),
        "datacube": lambda work, gap, progress: datacube(work, law),
        "workload": lambda work, gap, progress: workload_itself(work, law),
    }


def hdmm(work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    """OPT_HDMM: the best of single products, unions of products and marginals."""
    if one_wide_product(work):
        return kron(work, law, progress)
    return best_of((kron, *UNIONS), work, law, progress)  # `nested` contains `marginals`


def best_of(kinds: Sequence[Kind], work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    """The draft with the least total weighted variance among those of several kinds that can be had."""
    found: list[tuple[float, Draft]] = []
    refused: list[Infeasible] = []
    for kind in kinds:
        try:
            draft = kind(work, law, progress)
        except Infeasible as error:  # one kind of strategy does not fit; another may
            refused.append(error)
            continue
        found.append((sum(draft.strategy.totals(part)[0] for part in work.parts), draft))
    if not found:
        raise refused[0]
    return min(found, key=lambda each: each[0])[1]


def laplace_auto(work: Workload, gap: float, progress: Progress | None = None) -> Draft:
    """The best mechanism found for pure DP."""
    return hdmm(work, "laplace", progress)
