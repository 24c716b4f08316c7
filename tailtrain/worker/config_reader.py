"""One JSON object of a configuration, taken apart field by field.

A field that is missing, of the wrong type or out of range is an error that names file, field, found and
expected; so is a field that nobody took: a typing error must not silently become a default.
"""

from __future__ import annotations

import ipaddress
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtrain.errors import WorkerError

if TYPE_CHECKING:
    import re

_SHORT = 60


class Section:
    """A JSON object: each method takes one field by its name; `end` refuses what was not taken.

    Args:
        file: the file's name, for messages.
        path: where in the file the object stands.
        raw: the object.
    """

    def __init__(self, file: str, path: str, raw: Any) -> None:
        self._file, self._path = file, path
        if not isinstance(raw, dict):
            raise WorkerError("this should be an object", field=self.where(""), found=_short(raw))
        self._raw: dict[str, Any] = dict(raw)

    def where(self, name: str) -> str:
        """The field, as messages name it."""
        return f"{self._file}: {'.'.join(part for part in (self._path, name) if part)}"

    def bad(self, name: str, found: Any, expected: str) -> WorkerError:
        """The error for a value that is not acceptable."""
        return WorkerError(
            "this setting is not acceptable", field=self.where(name), found=_short(found), expected=expected
        )

    def take(self, name: str) -> Any:
        """The value as it stands; WorkerError if it is missing."""
        if name not in self._raw:
            raise WorkerError("a setting is missing", field=self.where(name))
        return self._raw.pop(name)

    def text(self, name: str, pattern: re.Pattern[str], expected: str) -> str:
        """A text that the whole pattern matches."""
        value = self.take(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.bad(name, value, expected)
        return value

    def one_of(self, name: str, *choices: str) -> str:
        """One of these words."""
        value = self.take(name)
        if value not in choices:
            raise self.bad(name, value, " or ".join(choices))
        return str(value)

    def integer(self, name: str, low: int, high: int | None = None) -> int:
        """A whole number within these bounds."""
        value = self.take(name)
        if type(value) is not int or value < low or (high is not None and value > high):
            expected = f"a whole number from {low}" + (f" to {high}" if high is not None else " up")
            raise self.bad(name, value, expected)
        return int(value)

    def number(self, name: str, *, above: float | None = None, low: float = 0.0) -> float:
        """A finite number above `above`, or from `low` up."""
        value = self.take(name)
        fits = type(value) in {int, float} and math.isfinite(value) and value >= low
        if not fits or (above is not None and value <= above):
            raise self.bad(
                name, value, f"a number {f'above {above}' if above is not None else f'from {low}'}"
            )
        return float(value)

    def absolute_path(self, name: str) -> Path:
        """A path from the root."""
        value = self.take(name)
        if not isinstance(value, str) or not value.startswith("/"):
            raise self.bad(name, value, "an absolute path")
        return Path(value)

    def absolute_path_or_none(self, name: str) -> Path | None:
        """A path from the root, or nothing."""
        if self._raw.get(name, 0) is None:
            del self._raw[name]
            return None
        return self.absolute_path(name)

    def address(self, name: str) -> str:
        """One IPv4 address; never the address that means all."""
        value = self.take(name)
        try:
            address = ipaddress.IPv4Address(value if isinstance(value, str) else "")
        except ValueError:
            raise self.bad(name, value, "an IPv4 address of the tailnet") from None
        if address.is_unspecified:
            raise self.bad(name, value, "the tailnet address alone, not all addresses")
        return str(address)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.take(name)
        if not isinstance(value, bool):
            raise self.bad(name, value, "true or false")
        return value

    def section(self, name: str) -> Section:
        """An object."""
        return Section(self._file, f"{self._path}.{name}".lstrip("."), self.take(name))

    def section_or_none(self, name: str) -> Section | None:
        """An object, or nothing."""
        if self._raw.get(name, 0) is None:
            del self._raw[name]
            return None
        return self.section(name)

    def names(self) -> list[str]:
        """The names of the fields that nobody took yet."""
        return list(self._raw)

    def items(self, name: str) -> list[Any]:
        """A list."""
        value = self.take(name)
        if not isinstance(value, list):
            raise self.bad(name, value, "a list")
        return value

    def sections(self, name: str) -> list[Section]:
        """A list of objects."""
        return [
            Section(self._file, f"{self._path}.{name}[{index}]".lstrip("."), item)
            for index, item in enumerate(self.items(name))
        ]

    def end(self) -> None:
        """WorkerError if a field is left that nobody took."""
        if self._raw:
            name = min(self._raw)
            raise WorkerError(
                "nobody knows this setting", field=self.where(name), found=_short(self._raw[name])
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."
