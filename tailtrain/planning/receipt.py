"""What a host keeps of what was applied to it. Drift is this against what is found and what is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tailtrain.errors import UnsupportedError

FORMAT = 1


class Login(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a host is logged in to: what its entry in the inventory says besides its hardware."""

    ssh_user: str | None = None
    sudo: bool = False


class Receipt(msgspec.Struct, frozen=True):
    """What was applied to a host, by whom and when.

    `files` maps the path of each small file to its SHA-256. `hardware` is what was found: cores, bytes of
    memory, number of GPUs. `fleet` names every host that has something of this fleet's, with its login, so
    that one that is taken out of the inventory can still be cleaned. `bytes_per_second` is how fast the last
    transfer to this host was, 0 where that is not known.
    """

    plan: str
    run: str
    by: str
    at: str
    files: Mapping[str, str]
    code: str
    environment: str
    peer_id: str
    cores: int
    memory_bytes: int
    gpus: int
    fleet: Mapping[str, Login]
    bytes_per_second: float = 0.0
    format: int = FORMAT

    def encode(self) -> bytes:
        """As the file on the host holds it."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def says_the_same_as(self, other: Receipt | None) -> bool:
        """Whether both vouch for the same state, whoever wrote them, when, and for which plan."""
        if other is None:
            return False
        passing = {"plan": "", "by": "", "at": "", "bytes_per_second": 0.0}
        return msgspec.structs.replace(self, **passing) == msgspec.structs.replace(other, **passing)


def read_receipt(text: str | None, host: str) -> Receipt | None:
    """The receipt in a file's text; None where there is none that makes sense.

    Raises:
        UnsupportedError: a newer version wrote it.
    """
    try:
        receipt = msgspec.json.decode(text or "", type=Receipt)
    except msgspec.DecodeError:
        return None
    if receipt.format > FORMAT:
        raise UnsupportedError(
            "was last deployed to by a newer version",
            host=host,
            field="receipt",
            found=f"format {receipt.format}",
            expected=f"format {FORMAT}",
            fix="Use that version, or a newer one",
        )
    # It stands on a host, where anybody may have written what would look like words of ours.
    words = (receipt.plan, receipt.run, receipt.by, receipt.at, receipt.code, receipt.environment)
    return receipt if all(map(str.isprintable, words)) else None


def receipts_of(answers: Iterable[object]) -> list[Receipt]:
    """The receipts among what hosts answered, whichever kind of look was taken at them."""
    found = (getattr(answer, "receipt", None) for answer in answers)
    return [receipt for receipt in found if isinstance(receipt, Receipt)]
