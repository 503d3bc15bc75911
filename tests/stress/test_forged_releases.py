"""A thousand forged releases of every kind: not one of them holds."""

import forging
from kinds import PLANS, released

from residua.verify import verify


def test_a_thousand_forged_releases_are_rejected(tmp_path):
    made = 0
    honest, path = tmp_path / "honest.release", tmp_path / "forged.release"
    for seed in range(6):
        for name in PLANS:
            released(name).save(honest)
            for forgery in forging.FORGERIES.values():
                if forging.forged(honest, path, forgery, seed):
                    made += 1
                    assert not verify(path).holds, (name, forgery.__name__, seed)
    assert made >= 1_000
