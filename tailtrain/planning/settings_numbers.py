"""The sections of group data that hold numbers alone, each within its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tailtrain.planning.settings_errors import unknown, wrong
from tailtrain.spec.problems import Problems

T = TypeVar("T")

# The least and the most of each number, both allowed; the worker holds its configuration to the same.
# Those of whole numbers are whole. Where a number only has to be above zero, the least is the next one to it.
_POSITIVE = math.ulp(0.0)
_LIMITS: dict[str, tuple[float, float]] = {
    "model.layers": (1, 256),
    "model.width": (8, 16_384),
    "model.heads": (1, 256),
    "model.context": (8, 65_536),
    "training.target_tokens": (1, 2**63 - 1),
    "training.round_seconds": (0.0, 86_400.0),
    "training.batch_size": (1, 65_536),
    "training.learning_rate": (_POSITIVE, 1_000.0),
    "training.weight_decay": (0.0, 1_000.0),
    "training.warmup_steps": (0, 2**63 - 1),
    "training.seed": (0, 2**63 - 1),
    "training.averaging_timeout_seconds": (5.0, 86_400.0),
    "training.outer_learning_rate": (_POSITIVE, 1_000.0),
    "training.outer_momentum": (0.0, math.nextafter(1.0, 0.0)),
    "training.start_timeout_seconds": (_POSITIVE, 86_400.0),
    "training.keep_checkpoints": (2, 1_000_000),
}


def number_section(cls: type[T], section: str, value: object) -> T:
    """A section of group data as a dataclass of numbers, whose defaults stand where it says nothing.

    Raises:
        DeclarationError: for unknown or wrong values, naming each.
    """
    if not isinstance(value, Mapping):
        raise wrong(section, value, "a dictionary")
    known: dict[str, Any] = {field.name: field.default for field in fields(cls)}  # type: ignore[arg-type]
    problems = Problems()
    for name, found in value.items():
        with problems.gathered():
            known[name] = _of_section(section, name, found, known)
    problems.raise_if_any()
    return cls(**known)


def _of_section(section: str, name: object, found: Any, known: Mapping[str, Any]) -> float:
    """A number of a section, of the type of its default."""
    if not isinstance(name, str) or name not in known:
        raise unknown(str(name), f"{section}.{name}", known, None)
    least, most = _LIMITS[f"{section}.{name}"]
    whole = isinstance(known[name], int)
    fits = isinstance(found, int if whole else (int, float)) and not isinstance(found, bool)
    # Not a number compares as false with both limits.
    if not fits or not least <= found <= most:
        raise wrong(f"{section}.{name}", found, _expected(whole=whole, least=least, most=most))
    return found if whole else float(found)


def _expected(*, whole: bool, least: float, most: float) -> str:
    if whole:
        return f"a whole number from {least} to {most}"
    lower = "above 0" if least == _POSITIVE else f"from {least:g}"
    return f"a number {lower}, {'below 1' if most < 1 else f'at most {most:g}'}"
