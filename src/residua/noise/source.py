"""Where noise gets its random bits: the operating system, or a seed for simulations."""

import os
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from residua.errors import BudgetError

Words = NDArray[np.uint64]

# One key makes at most 2^26 AES blocks: telling them from random bits succeeds with advantage 2^-77 (N-001).
BYTES_PER_KEY = 2**30
_KEY_BYTES = 32


class Source(Protocol):
    """Independent uniform 64-bit words; `simulated` says that they can be foretold."""

    @property
    def simulated(self) -> bool:
        """Whether the words come from a seed and protect nobody."""

    def words(self, count: int) -> Words:
        """The next `count` words, shape (count,)."""


@dataclass(frozen=True, slots=True)
class SystemSource:
    """Words from the operating system's entropy, stretched by AES-256 in counter mode (N-001).

    Every call takes a new key and forgets it. There is no state: nothing that threads could share, that a
    fork could copy or that a later look into memory could find. An entropy failure is raised as it comes.
    """

    simulated: ClassVar[bool] = False

    def words(self, count: int) -> Words:
        """`count` fresh words."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        stream = bytearray()
        while (missing := 8 * count - len(stream)) > 0:
            cipher = Cipher(algorithms.AES(os.urandom(_KEY_BYTES)), modes.CTR(bytes(16)))
            stream += cipher.encryptor().update(bytes(min(missing, BYTES_PER_KEY)))
        return np.frombuffer(stream, dtype=np.uint64)


class SimulatedSource:
    """Words that a seed determines, for tests and simulations only."""

    simulated: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise BudgetError(f"the seed of simulated noise must be an integer of at least 0, not {seed!r}")
        self.seed = seed
        self._stream = np.random.PCG64(seed)  # its words are the same in every version of numpy

    def words(self, count: int) -> Words:
        """The next `count` words of the seed's stream."""
        return self._stream.random_raw(count)

    def __repr__(self) -> str:
        return f"simulated(seed={self.seed})"


def simulated(seed: int) -> SimulatedSource:
    """A source that repeats itself: for tests and simulations, never for a release.

    >>> bool((simulated(seed=1).words(4) == simulated(seed=1).words(4)).all())
    True
    """
    return SimulatedSource(seed)
