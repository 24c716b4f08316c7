"""What is said of a setting that does not exist, and of one that has a wrong value."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.spec.problems import shown

if TYPE_CHECKING:
    from collections.abc import Mapping


def unknown(name: str, label: str, known: Mapping[str, object], otherwise: str | None) -> DeclarationError:
    """A name that no setting has, with the nearest that one has."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return DeclarationError(
        "no such setting",
        field=f"group_data: {label}",
        expected=near[0] if near else f"one of {', '.join(known)}",
        fix=f"Did you mean {near[0]}?" if near else otherwise,
    )


def wrong(field: str, found: object, expected: str) -> DeclarationError:
    """A value that a setting cannot have."""
    return DeclarationError(
        "wrong value", field=f"group_data: {field}", found=shown(found), expected=expected
    )
