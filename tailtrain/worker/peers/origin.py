"""What nodes must have in common to work together, and who has not.

A run is made of its plan, its data, its worker's code and the words in which nodes speak. A node that has any
of these differently would train towards another model: it is turned away, and told apart by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.errors import PeerError
from tailtrain.worker.ledger import PROTOCOL, Fields

if TYPE_CHECKING:
    from tailtrain.worker.config import WorkerConfig

_PARTS = {
    "run": "a node is of another run",
    "code": "a node runs other code",
    "data": "a node has other data sets",
    "plan": "a node follows another plan",
}
_FIX = {
    "run": "Deploy to all nodes, so that they are of one run",
    "code": "Deploy to all nodes, so that they run the same code",
    "data": "Deploy to all nodes, so that they have the same data sets",
    "plan": "Deploy to all nodes, so that they follow the same plan",
}


@dataclass(frozen=True)
class Origin:
    """What a message is stamped with.

    Attributes:
        run: the run's id.
        code: digest of the worker's code.
        data: digest of the data sets.
        plan: digest of what is planned.
    """

    run: str
    code: str
    data: str
    plan: str

    @classmethod
    def of(cls, config: WorkerConfig) -> Origin:
        """This node's."""
        made_of = config.coordination.made_of
        return cls(config.run_id, made_of.code, made_of.data, made_of.plan)

    def stamp(self, said: dict[str, Any]) -> dict[str, Any]:
        """A message as sent, with where it comes from."""
        stamp = {"run": self.run, "code": self.code, "data": self.data, "plan": self.plan}
        return {"protocol": PROTOCOL, **stamp, "said": said}

    def admit(self, raw: Any, who: str) -> Any:
        """What a stamped message says, not yet checked.

        Args:
            raw: the message as it came.
            who: the node that it is from.

        Raises:
            PeerError: it is not stamped, speaks another version of the protocol, or is of another run, or of
                a node that has other code, other data sets or another plan.
        """
        if not isinstance(raw, dict):
            raise PeerError("a message is not a set of fields", host=who, found=repr(raw)[:80])
        fields = Fields(raw, who)
        if (version := fields.whole("protocol")) != PROTOCOL:
            raise PeerError(
                "a node speaks another protocol version",
                host=who,
                found=version,
                expected=PROTOCOL,
                fix=_FIX["code"],
            )
        for part, problem in _PARTS.items():
            found, expected = fields.text(part), getattr(self, part)
            if found != expected:
                raise PeerError(problem, host=who, field=part, found=found, expected=expected, fix=_FIX[part])
        said = fields.take("said")
        fields.end()
        return said
