from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.spec import ONE, Q16_16, ZERO
from tailtrain.spec.fixed_point import SCALE, euclidean_quotient

INTEGERS = st.integers() | st.integers(-20, 20)
NUMBERS = st.builds(Q16_16, INTEGERS)


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    # The worked examples of Int.div in Lean's reference manual: 0 <= remainder < |divisor|, and x / 0 = 0.
    [
        *((7, 0, 0), (0, 7, 0), (12, 6, 2), (12, -6, -2), (-12, 6, -2), (-12, -6, 2)),
        *((12, 7, 1), (12, -7, -1), (-12, 7, -2), (-12, -7, 2), (-5, 0, 0), (0, 0, 0)),
    ],
)
def test_division_of_integers_is_lean_s(dividend: int, divisor: int, quotient: int) -> None:
    assert euclidean_quotient(dividend, divisor) == quotient


@given(dividend=INTEGERS, divisor=INTEGERS.filter(bool))
def test_the_remainder_is_never_negative_and_less_than_the_divisor(dividend: int, divisor: int) -> None:
    remainder = dividend - euclidean_quotient(dividend, divisor) * divisor
    assert 0 <= remainder < abs(divisor)


def test_whole_numbers_are_multiples_of_65536() -> None:
    assert (ZERO.raw, ONE.raw, Q16_16.of_nat(36).raw) == (0, 65536, 36 * 65536)
    assert Q16_16.of_nat(1) == ONE


def test_the_specification_s_first_weight() -> None:
    assert Q16_16.of_nat(16) / Q16_16.of_nat(36) == Q16_16(29127)


def test_a_quotient_by_zero_is_zero() -> None:
    assert ONE / ZERO == ZERO


def test_negative_quotients_and_products_keep_the_remainder_positive() -> None:
    assert Q16_16(-1) / Q16_16.of_nat(2) == Q16_16(-1)
    assert Q16_16(1) / Q16_16.of_nat(-2) == Q16_16(0)
    assert Q16_16(-1) * Q16_16(1) == Q16_16(-1)


@given(NUMBERS, NUMBERS)
def test_sums_and_differences_are_exact(left: Q16_16, right: Q16_16) -> None:
    assert (left + right).as_fraction() == left.as_fraction() + right.as_fraction()
    assert (left + right) - right == left
    assert left + right == right + left


@given(NUMBERS, NUMBERS)
def test_a_product_is_the_exact_one_cut_downwards_to_a_step(left: Q16_16, right: Q16_16) -> None:
    lost = left.as_fraction() * right.as_fraction() - (left * right).as_fraction()
    assert 0 <= lost < Fraction(1, SCALE)


@given(NUMBERS, NUMBERS.filter(lambda number: number != ZERO))
def test_a_quotient_misses_the_exact_one_by_less_than_a_step(left: Q16_16, right: Q16_16) -> None:
    lost = left.as_fraction() / right.as_fraction() - (left / right).as_fraction()
    assert abs(lost) < Fraction(1, SCALE)
    assert lost == 0 or (lost > 0) == (right > ZERO)


@given(NUMBERS)
def test_one_is_neutral(number: Q16_16) -> None:
    assert number * ONE == number
    assert number / ONE == number


@given(NUMBERS, NUMBERS)
def test_the_order_is_that_of_the_values(left: Q16_16, right: Q16_16) -> None:
    assert (left < right) == (left.as_fraction() < right.as_fraction())
    assert (left <= right) == (left.as_fraction() <= right.as_fraction())
    assert (left == right) == (left.raw == right.raw)


def test_a_number_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ONE.raw = 2  # type: ignore[misc]
