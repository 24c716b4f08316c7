"""Sending files to a node: the command to run there, and the bytes for its standard input.

Nothing needs to be installed on the node but `python3`: the command reads the modules to run, the options
and the files from its standard input. The bytes are made as they are taken, so memory stays small whatever
is sent, and whoever runs the command (a connector, ssh, a test) decides how fast.
"""

from __future__ import annotations

import binascii
import inspect
import json
import shlex
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from tailtrain.data import folder, receive, verify
from tailtrain.errors import DataError, TransferError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

PIECE_BYTES = 256 << 10
"""How much of a file is read and handed on at a time."""

# Reads one line of JSON, [[module name, source], ...], makes modules of it, and ends as the last one's main()
# says. -I: neither the environment nor the working folder can slip another module in. -S: nor can what is
# installed, which need not be looked for then.
_BOOTSTRAP = (
    "import json,sys,types\n"
    "for name,source in json.loads(sys.stdin.buffer.readline()):\n"
    "    module=sys.modules[name]=types.ModuleType(name)\n"
    '    exec(compile(source,name,"exec"),module.__dict__)\n'
    "sys.exit(module.main())"
)

# The same for one question and its answer, both compressed: they then fit into the few packets that TCP sends
# before it waits for the first acknowledgement. The answer is text, for a login shell may print before it.
_ASK = (
    "import binascii,io,json,sys,types,zlib\n"
    "sources,request=json.loads(zlib.decompress(sys.stdin.buffer.read()))\n"
    "for name,source in sources:\n"
    "    module=sys.modules[name]=types.ModuleType(name)\n"
    '    exec(compile(source,name,"exec"),module.__dict__)\n'
    "sys.stdin=io.TextIOWrapper(io.BytesIO(request.encode()))\n"
    "output,sys.stdout=sys.stdout,io.StringIO()\n"
    "code=module.main()\n"
    'output.write(binascii.b2a_base64(zlib.compress(sys.stdout.getvalue().encode())).decode("ascii"))\n'
    "sys.exit(code)"
)


@dataclass(frozen=True)
class SentFile:
    """A file to send: the name that it will have, the hash and size that it must have."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Transfer:
    """What goes where.

    Attributes:
        folder: on the node; must exist.
        files: in the order in which they are sent.
        owner: user who will own them; without one, who runs the command.
        group: the same for the group.
        mode: octal, as a string.
        reserve_bytes: how much of the disk must stay free; checked before the first byte.
    """

    folder: str
    files: tuple[SentFile, ...]
    owner: str | None = None
    group: str | None = None
    mode: str = "0640"
    reserve_bytes: int = 0

    @property
    def bytes(self) -> int:
        """What all files have together."""
        return sum(file.size for file in self.files)


class Receipt(msgspec.Struct, frozen=True):
    """What the node says of a transfer: files written and left alone, bytes written, and how long it took."""

    received: int
    skipped: int
    bytes: int
    seconds: float


class _Answer(msgspec.Struct, frozen=True):
    """The receiver's line; see `tailtrain.data.receive.main`."""

    ok: bool
    received: int
    skipped: int
    bytes: int
    seconds: float
    error: str | None = None
    file: str | None = None


def command(python: str = "python3") -> str:
    """Give the shell command that runs modules sent to its standard input (see `program`)."""
    return shlex.join([python, "-IS", "-c", _BOOTSTRAP])


def program(*modules: ModuleType) -> bytes:
    """Give the first line for `command`: the modules' sources, in order of use; the last has `main() -> int`.

    They may import the standard library and those before them.
    """
    return json.dumps(_sources(modules)).encode() + b"\n"


def ask_command(python: str = "python3") -> str:
    """Give the shell command that answers a `question` sent to its standard input."""
    return shlex.join([python, "-IS", "-c", _ASK])


def question(modules: Sequence[ModuleType], request: object) -> bytes:
    """Give a request to the last of some modules as `ask_command` reads it; modules as for `program`.

    The last module's `main` reads the request from its standard input as one line of JSON, and prints its
    answer as the last line.
    """
    return Asker(modules).question(request)


class Asker:
    """Makes a `question` for each of many hosts; what is the same in all of them is compressed once."""

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self._compressor = zlib.compressobj()
        self._start = self._compressor.compress(f"[{json.dumps(_sources(modules))},".encode())

    def question(self, request: object) -> bytes:
        """As `question`."""
        compressor = self._compressor.copy()
        rest = f"{json.dumps(json.dumps(request) + chr(10))}]"
        return self._start + compressor.compress(rest.encode()) + compressor.flush()


def answer(stdout: str) -> Any:
    """Read what `ask_command` printed.

    Raises:
        ValueError: there is no answer in it.
    """
    try:
        said = zlib.decompress(binascii.a2b_base64(stdout.rstrip().rpartition("\n")[2], strict_mode=True))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    return json.loads(said.decode().rstrip().rpartition("\n")[2])


def _sources(modules: Sequence[ModuleType]) -> list[list[str]]:
    return [[module.__name__, inspect.getsource(module)] for module in modules]


def upload(
    transfer: Transfer, open_file: Callable[[SentFile], BinaryIO], *, python: str = "python3"
) -> tuple[str, Iterable[bytes]]:
    """Give the command to run on the node and the bytes for its standard input.

    Args:
        transfer: what goes where.
        open_file: opens one of the files for reading, when its turn comes.
        python: the interpreter there, 3.9 or later.

    The bytes may be taken again from the start, for a command that is repeated. Taking them raises DataError
    where a file cannot be read or has not the announced size; the node then sees the input end early, and
    keeps what is whole.
    """
    return command(python), _Bytes(transfer, open_file)


@dataclass(frozen=True)
class _Bytes:
    transfer: Transfer
    open_file: Callable[[SentFile], BinaryIO]

    def __iter__(self) -> Iterator[bytes]:
        return stream(self.transfer, self.open_file)


def stream(transfer: Transfer, open_file: Callable[[SentFile], BinaryIO]) -> Iterator[bytes]:
    """Yield the bytes for the receiver's standard input, as `upload` says."""
    yield program(verify, folder, receive)
    yield json.dumps(asdict(transfer)).encode() + b"\n"
    for file in transfer.files:
        sent = 0
        try:
            with open_file(file) as source:
                while piece := source.read(min(PIECE_BYTES, file.size - sent + 1)):
                    sent += len(piece)
                    if sent > file.size:
                        break
                    yield piece
        except OSError as error:
            raise DataError(
                "the file to send cannot be read", field=file.name, found=error.strerror
            ) from error
        if sent != file.size:
            raise DataError(
                "the file to send has another size than the manifest says",
                field=file.name,
                found=f"{sent} bytes" if sent < file.size else f"more than {file.size} bytes",
                expected=f"{file.size} bytes",
                fix="Cut the data set again.",
            )


def receipt(host: str, stdout: str) -> Receipt:
    """Read the node's answer.

    Args:
        host: whom errors name.
        stdout: what the command printed; only its last line counts, whatever a login shell says before it.

    Raises:
        TransferError: the transfer failed, or there is no answer at all (the connection or the process died).
    """
    lines = stdout.strip().splitlines()
    try:
        answer = msgspec.json.decode(lines[-1] if lines else "", type=_Answer)
    except msgspec.DecodeError as error:
        raise TransferError(
            "the transfer ended without an answer",
            host=host,
            found=lines[-1] if lines else "no output",
            fix="Run it again: what arrived whole is kept.",
        ) from error
    if not answer.ok:
        raise TransferError(
            answer.error or "the transfer failed",
            host=host,
            field=answer.file,
            fix=f"{answer.received} files arrived whole and are kept.",
        )
    return Receipt(answer.received, answer.skipped, answer.bytes, answer.seconds)
