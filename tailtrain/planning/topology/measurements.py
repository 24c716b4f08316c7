"""What a host says that it measured, taken no further than its form."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tailtrain.planning.observed import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping

_RUN = re.compile(r"[0-9a-f]{16}")
_MOST = 1e15
_NUMBERS = ("tokens_per_second", "bytes_per_second", "averaging_seconds", "round_seconds")


def read_measured(document: Mapping[str, object]) -> Measured | None:
    """A host's measured.json; None where it is empty or not of its form.

    Every number must be finite, not negative and below 10^15: no machine does more, and nothing that is
    worked out from such numbers overflows.
    """
    run, parameters = document.get("run"), document.get("parameters")
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        return None
    if not isinstance(parameters, int) or isinstance(parameters, bool) or not 0 < parameters < _MOST:
        return None
    values: list[float] = []
    for name in _NUMBERS:
        value = document.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        if not math.isfinite(value) or not 0 <= value < _MOST:
            return None
        values.append(float(value))
    return Measured(run, parameters, *values)
