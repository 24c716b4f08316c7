"""Handing out a whole number of things exactly, in proportion to weights.

The specification floors each share and so loses up to one record per node. Here the shares are those of the
largest remainder method (Hamilton's): every share is the floor or the ceiling of its exact quota, and they
sum to the total.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.spec.fixed_point import Q16_16, SCALE
from tailtrain.spec.problems import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

Weight = int | float | Fraction
"""What shares are proportional to: cores, tokens per second. Floats count at their exact value."""


def apportion(total: int, weights: Sequence[Weight]) -> list[int]:
    """Splits `total` in proportion to `weights`, exactly.

    All arithmetic is on integers, so every machine gets the same result. What the floors leave over goes, one
    each, to the largest remainders; equal remainders are served in the order given. A weight of zero gets
    nothing, and a larger weight never gets less than a smaller one.

    Args:
        total: how many things there are, 0 or more.
        weights: one per receiver, each finite and not negative, at least one above zero.

    Returns:
        One share per weight, in the same order, summing to `total`.

    Raises:
        DeclarationError: the total or a weight is out of its range, or there is no weight above zero.
    """
    if isinstance(total, bool) or not isinstance(total, int) or total < 0:
        raise DeclarationError(
            "the total to be shared is out of range",
            field="total",
            found=shown(total),
            expected="a whole number, 0 or more",
        )
    exact = [_exact(weight, place) for place, weight in enumerate(weights)]
    if not any(exact):
        raise DeclarationError(
            "nothing can be shared without a weight above zero",
            field="weights",
            found=f"{len(exact)} weights, all zero" if exact else "no weights",
            expected="at least one above zero",
        )
    denominator = math.lcm(*(weight.denominator for weight in exact))
    parts = [weight.numerator * (denominator // weight.denominator) for weight in exact]
    whole = sum(parts)
    shares = [total * part // whole for part in parts]
    remainders = [total * part % whole for part in parts]
    # sorted() is stable: among equal remainders the earlier receiver stays first.
    by_remainder = sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)
    for place in by_remainder[: total - sum(shares)]:
        shares[place] += 1
    return shares


def q16_weights(weights: Sequence[Weight]) -> tuple[Q16_16, ...]:
    """Each weight's part of 1.0 as a Q16.16 number; the raw values sum to exactly 65536.

    Raises:
        DeclarationError: as `apportion`.
    """
    return tuple(Q16_16(raw) for raw in apportion(SCALE, weights))


def _exact(weight: object, place: int) -> Fraction:
    # bool is an int to Python; a comparison with NaN is false, so NaN is refused as well.
    if (
        not isinstance(weight, int | float | Fraction)
        or isinstance(weight, bool)
        or not 0 <= weight < math.inf
    ):
        raise DeclarationError(
            "a weight is out of range",
            field=f"weights[{place}]",
            found=shown(weight),
            expected="a finite number, 0 or more",
        )
    return Fraction(weight)
