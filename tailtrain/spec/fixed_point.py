"""Q16.16 fixed-point numbers, to the bit as the specification computes them (section 0).

A number is a whole count of 1/65536. Nothing is ever rounded to the nearest: products and quotients are cut
by Lean 4's `/` on `Int`, the Euclidean division whose remainder is never negative and where x / 0 = 0.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec

SCALE = 65536
"""How many raw units make 1.0."""


def euclidean_quotient(dividend: int, divisor: int) -> int:
    """The quotient q with `dividend = q * divisor + r` and `0 <= r < |divisor|`; 0 where the divisor is 0.

    This is `Int.ediv`, which Lean 4 means by `/` on integers. Python's `//` differs for a negative divisor,
    where it leaves a remainder that is not positive.
    """
    if divisor == 0:
        return 0
    return dividend // divisor if divisor > 0 else -(dividend // -divisor)


class Q16_16(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):  # noqa: N801 - the specification's own name
    """A signed number in steps of 1/65536, of any size; its order is the order of `raw`.

    Attributes:
        raw: the number times 65536.
    """

    raw: int

    @classmethod
    def of_nat(cls, number: int) -> Q16_16:
        """The whole number as a fixed-point number (`ofNat`)."""
        return cls(number * SCALE)

    def __add__(self, other: Q16_16) -> Q16_16:
        return Q16_16(self.raw + other.raw)

    def __sub__(self, other: Q16_16) -> Q16_16:
        return Q16_16(self.raw - other.raw)

    def __mul__(self, other: Q16_16) -> Q16_16:
        return Q16_16(euclidean_quotient(self.raw * other.raw, SCALE))

    def __truediv__(self, other: Q16_16) -> Q16_16:
        return Q16_16(euclidean_quotient(self.raw * SCALE, other.raw))

    def as_fraction(self) -> Fraction:
        """The exact value, for reading and for arithmetic that must not be cut."""
        return Fraction(self.raw, SCALE)


ZERO = Q16_16(0)
ONE = Q16_16(SCALE)
