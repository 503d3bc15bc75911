"""A uniform real number, drawn only as far as a comparison needs (N-003)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from residua.noise.source import Source

if TYPE_CHECKING:
    from flint import arb

_GUARD_BITS = 64


@dataclass(slots=True)
class Uniform:
    """A number V with numerator <= 2^bits V <= numerator + 1; its later bits are not drawn yet."""

    source: Source
    numerator: int
    bits: int

    def below(self, limit: Callable[[], "arb"]) -> bool:
        """Whether V is below a real number; `limit` encloses it at flint's working precision."""
        from flint import arb, ctx

        while True:
            with ctx.workprec(self.bits + _GUARD_BITS):
                scaled = limit() * arb(2) ** self.bits
                if scaled >= self.numerator + 1:
                    return True
                if scaled <= self.numerator:
                    return False
            self.numerator = self.numerator << 64 | int(self.source.words(1)[0])
            self.bits += 64


def steps_reached(reached: Callable[[int], bool], guess: int) -> int:
    """The largest k >= 0 that is reached, if 0 is and every k below one that is; `guess` only saves time."""
    low, high, stride = guess, guess + 1, 1
    while low > 0 and not reached(low):
        low, high, stride = max(0, low - stride), low, 2 * stride
    while reached(high):
        low, high, stride = high, high + stride, 2 * stride
    while high - low > 1:
        middle = (low + high) // 2
        if reached(middle):
            low = middle
        else:
            high = middle
    return low
