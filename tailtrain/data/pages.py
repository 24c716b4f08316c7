"""The pages of a parquet file's columns, from their headers: how much memory reading them will take.

A reader holds a page at a time, unpacked, and the rows that it was asked for. How large both can become is
not in the file's footer, only in the header before each page: a small Thrift structure, given in
https://github.com/apache/parquet-format (`PageHeader`), in Thrift's compact protocol. Headers are read and
pages are skipped, so this costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.parquet import ColumnChunkMetaData

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_DICTIONARY_ENCODINGS = (2, 8)
_DELTA_BYTE_ARRAY = 7
# A page's header is three structures deep; whoever nests deeper wants to exhaust the stack.
_MOST_DEPTH = 5
_MOST_VARINT_BITS = 70


class Page(NamedTuple):
    """A page of a column.

    Attributes:
        rows: how many values are in it; 0 in a dictionary.
        size: bytes, unpacked.
        shared: what its values are made of is stored once for all of them (a dictionary, prefixes), so that
            they may take much more than `size` when they are read.
        dictionary: it is the column's dictionary.
    """

    rows: int
    size: int
    shared: bool
    dictionary: bool


def pages_of(stream: BinaryIO, column: ColumnChunkMetaData) -> Iterator[Page]:
    """Yield the pages of a column in a row group, in order.

    Args:
        stream: the file.
        column: where they are, as the file's footer says.

    Raises:
        ValueError: what stands there is no page.
        OSError: the file cannot be read.
    """
    position = int(column.data_page_offset)
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < position:
        position = int(column.dictionary_page_offset)
    left = int(column.num_values)
    while left > 0:
        stream.seek(position)
        header = _structure(stream)
        kind, size, stored = (_number(header, field) for field in (1, 2, 3))
        position = stream.tell() + stored
        if kind == _DICTIONARY:
            yield Page(0, size, shared=False, dictionary=True)
        elif kind in {_DATA, _DATA_V2}:
            about = header.get(5 if kind == _DATA else 8)
            if not isinstance(about, dict):
                raise ValueError("a page's header says nothing of its values")
            rows, encoding = _number(about, 1), _number(about, 2 if kind == _DATA else 4)
            left -= rows
            shared = encoding == _DELTA_BYTE_ARRAY or encoding in _DICTIONARY_ENCODINGS
            yield Page(rows, size, shared=shared, dictionary=False)


def _number(structure: dict[int, Any], field: int) -> int:
    value = structure.get(field)
    if not isinstance(value, int) or value < 0:
        raise ValueError("a page's header is not one")
    return value


def _structure(stream: BinaryIO, depth: int = 0) -> dict[int, Any]:
    """Read a Thrift structure: numbers and structures by their field; what else there is stays out."""
    if depth == _MOST_DEPTH:
        raise ValueError("a page's header is not one")
    fields: dict[int, Any] = {}
    field = 0
    while head := _byte(stream):
        field = field + (head >> 4) if head >> 4 else _signed(stream)
        fields[field] = _value(stream, head & 15, depth)
    return fields


def _value(stream: BinaryIO, kind: int, depth: int) -> Any:
    match kind:
        case 1 | 2:
            return kind == 1
        case 3:
            return _byte(stream)
        case 4 | 5 | 6:
            return _signed(stream)
        case 7:
            return stream.seek(8, 1) and None
        case 8:
            return stream.seek(_varint(stream), 1) and None
        case 12:
            return _structure(stream, depth + 1)
    # Lists, sets and maps: the format's page headers have none.
    raise ValueError("a page's header is not one")


def _signed(stream: BinaryIO) -> int:
    value = _varint(stream)
    return (value >> 1) ^ -(value & 1)


def _varint(stream: BinaryIO) -> int:
    value = shift = 0
    while shift < _MOST_VARINT_BITS:
        byte = _byte(stream)
        value |= (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 - the top bit says that more follows
            return value
        shift += 7
    raise ValueError("a page's header is not one")


def _byte(stream: BinaryIO) -> int:
    byte = stream.read(1)
    if not byte:
        raise ValueError("a page is missing: the file ends before it")
    return byte[0]
