"""The demo's two data sets, made from what every Debian machine with Python has.

Code is the Python standard library. Prose is the documentation on the machine: Python's own help topics, the
docstrings of those library modules that are not in the code (so that nothing is held out in one domain and
trained on in the other), licences, and what /usr/share/doc holds. Both are capped, so that the demo is quick,
and depend on nothing but the machine's files.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import sys
import sysconfig
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tailtrain.data.build import write_records
from tailtrain.data.files import PROSE_BREAKS, Found, Skipped, find, split_text
from tailtrain.data.sources import Options, Record, file_records
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

PROSE_BYTES = 6_000_000
"""Text in the prose data set at most."""

CODE_BYTES = 6_000_000
"""Text in the code data set at most."""

_PROSE_RECORD, _CODE_RECORD = 2048, 4096
_LICENCES, _DOCUMENTATION = Path("/usr/share/common-licenses"), Path("/usr/share/doc")
# Lists of changes and generated pages are no prose.
_PROSE_NAMES = ("copyright", "readme", "news", "faq", "todo", "authors", "thanks")
_PROSE_ENDINGS = (".txt", ".md", ".rst", ".txt.gz", ".md.gz", ".rst.gz")
# Tests and tables would outweigh the code that people write; help topics are prose; the rest is not the
# library's own.
_NOT_CODE = {
    "encodings",
    "idle_test",
    "pydoc_data",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "turtledemo",
}
_INPUTS_KEY = b"tailtrain.inputs"
# Raise this when the same inputs make other records.
_RECIPE = 1


def build_demo_datasets(
    folder: Path, *, progress: Callable[[int, int], None] | None = None
) -> tuple[Path, Path]:
    """Make `prose.parquet` and `code.parquet` in a folder, unless they are there, made from the same files.

    Args:
        folder: where they go; made where it is missing.
        progress: is called with how many bytes of text were taken, and how many there will be at most.

    Returns:
        The paths of the two files, prose first.

    Raises:
        DataError: the standard library's source is not on this machine, or the files cannot be written.
    """
    prose, code = folder / "prose.parquet", folder / "code.parquet"
    library = _library()
    documents = [
        *_files_in(_LICENCES, lambda _name: True),
        *sorted(_files_in(_DOCUMENTATION, _is_prose), key=_copyrights_last),
    ]
    inputs = _fingerprint([*library, *documents])
    if _made_from(prose) == _made_from(code) == inputs:
        return prose, code
    counter = _Counter(PROSE_BYTES + CODE_BYTES, progress)
    for_code, for_prose = _share_out(library)
    options = Options(max_record_bytes=_CODE_RECORD)
    code_records = chain.from_iterable(file_records(file, options, Skipped(), "Python") for file in for_code)
    prose_records = chain(_help_topics(), _docstrings(for_prose), _documents(documents))
    about = {_INPUTS_KEY.decode(): inputs}
    for path, records, column, cap in (
        (code, code_records, "content", CODE_BYTES),
        (prose, prose_records, "text", PROSE_BYTES),
    ):
        counted = counter.count(_capped(_without_repetition(records), cap))
        if write_records(counted, path, text_column=column, about=about) is None:
            raise DataError("there is nothing to make the demo's data set of", field=str(path))
    return prose, code


def _library() -> list[Found]:
    """Find the standard library's source files."""
    top = Path(sysconfig.get_path("stdlib"))
    files = find([top], Skipped(), wanted=lambda name: name.endswith(".py"), not_in=_NOT_CODE)
    if not files:
        raise DataError(
            "the source of Python's standard library is not on this machine",
            field=str(top),
            fix="On Debian: apt-get install libpython3-stdlib",
        )
    return files


def _share_out(library: Sequence[Found]) -> tuple[list[Found], list[Found]]:
    """Choose the modules for the code, up to its cap and two thirds of the library; the others are for prose.

    They are chosen in the order of their names' hashes: a fair sample that does not change from run to run.
    """
    cap = min(CODE_BYTES, sum(file.size for file in library) * 2 // 3)
    code: list[Found] = []
    taken = 0
    for file in sorted(library, key=_shuffled):
        if taken + file.size <= cap:
            code.append(file)
            taken += file.size
    return sorted(code, key=lambda file: file.name), [file for file in library if file not in set(code)]


def _shuffled(file: Found) -> bytes:
    return hashlib.sha256(file.name.encode()).digest()


def _help_topics() -> Iterator[Record]:
    """Yield Python's own help on the language, where this Python has it."""
    if importlib.util.find_spec("pydoc_data.topics") is None:
        return
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    for name, text in sorted(topics.items()):
        for piece in split_text(text.strip("\n"), _PROSE_RECORD, PROSE_BREAKS):
            yield Record(piece, f"pydoc/{name}", "English")


def _docstrings(files: Iterable[Found]) -> Iterator[Record]:
    """Yield what modules say of themselves, in the order of their source."""
    for file in files:
        try:
            tree = ast.parse(file.path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            # Some files of the library are templates or examples of wrong code: they have no docstrings.
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        text = "\n\n".join(text for text in texts if text)
        if text.strip():
            for piece in split_text(text, _PROSE_RECORD, PROSE_BREAKS):
                yield Record(piece, file.name, "English")


def _documents(files: Iterable[Found]) -> Iterator[Record]:
    options = Options(max_record_bytes=_PROSE_RECORD)
    for file in files:
        yield from file_records(file, options, Skipped(), None)


def _files_in(folder: Path, wanted: Callable[[str], bool]) -> list[Found]:
    return find([folder], Skipped(), wanted=wanted) if folder.is_dir() else []


def _copyrights_last(file: Found) -> tuple[bool, bytes]:
    """Order documentation so that a cap leaves a fair sample, and copyrights where there is room."""
    return file.path.name == "copyright", _shuffled(file)


def _is_prose(name: str) -> bool:
    return name.lower().startswith(_PROSE_NAMES) or name.lower().endswith(_PROSE_ENDINGS) or name.isupper()


def _without_repetition(records: Iterable[Record]) -> Iterator[Record]:
    """Leave out texts that came before: many packages carry the same licence."""
    seen: set[bytes] = set()
    for record in records:
        digest = hashlib.sha256(record.text.encode()).digest()
        if digest not in seen:
            seen.add(digest)
            yield record


def _capped(records: Iterable[Record], cap: int) -> Iterator[Record]:
    taken = 0
    for record in records:
        taken += len(record.text.encode())
        if taken > cap:
            return
        yield record


class _Counter:
    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def count(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            self._done += len(record.text.encode())
            if self._progress:
                self._progress(self._done, self._total)
            yield record


def _fingerprint(files: Iterable[Found]) -> str:
    """Hash what the data sets are made from: names, sizes and times of files, Python, this recipe."""
    looks = [[file.name, file.size, file.path.stat().st_mtime_ns] for file in files]
    what = [_RECIPE, sys.version, PROSE_BYTES, CODE_BYTES, looks]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def _made_from(path: Path) -> str | None:
    """Read what a parquet file was made from; None where it is missing, damaged or from elsewhere."""
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException):
        return None
    value = metadata.get(_INPUTS_KEY)
    return value.decode() if value else None
