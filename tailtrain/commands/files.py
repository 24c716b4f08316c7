"""Writing a file of the project so that it is there whole, or as it was before."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tailtrain.errors import DeclarationError

ORDINARY_MODE = 0o644


def read_text(path: Path) -> str:
    """A file's text with its line endings as they are.

    Raises:
        DeclarationError: it cannot be read, or is no text.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise DeclarationError(f"cannot be read: {error.strerror}", field=str(path)) from None
    except UnicodeDecodeError:
        raise DeclarationError("is no text in UTF-8", field=str(path)) from None


def write_text(path: Path, text: str, *, mode: int | None = None) -> None:
    """Write a file, or leave it as it is: beside it first, flushed to the disk, then renamed.

    A link stays a link, and a file's mode stays as it is where none is given.

    Raises:
        DeclarationError: it cannot be written.
    """
    target = path.resolve()
    try:
        if mode is None:
            mode = target.stat().st_mode if target.exists() else ORDINARY_MODE
        target.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fchmod(file.fileno(), mode & 0o7777)
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DeclarationError(f"cannot be written: {error.strerror}", field=str(path)) from None
