"""What a node writes about an averaging: a line of progress.jsonl, its status, its measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.worker.reading.reading_progress import epochs_of

if TYPE_CHECKING:
    from tailtrain.worker.averaging import Outcome
    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.measured import Measurements
    from tailtrain.worker.membership import Membership
    from tailtrain.worker.node_state import NodeState
    from tailtrain.worker.status import StatusFile
    from tailtrain.worker.trainer import Work


@dataclass(frozen=True)
class Times:
    """Of a round on this node, by the run's clock in unix seconds.

    Attributes:
        started: when training for it began.
        due: when it was to end.
        arrived: when this node was ready to average.
        since: the round of the averaging of all before it, by the schedule.
    """

    started: float
    due: float
    arrived: float
    since: int


class Recorder:
    """Writes about averagings.

    Args:
        config: this node's configuration.
        state: what it has committed.
        status: where it is written.
        members: the others.
        measured: what this node measures for later plans.
    """

    def __init__(
        self,
        config: WorkerConfig,
        state: NodeState,
        status: StatusFile,
        members: Membership,
        measured: Measurements,
    ) -> None:
        self._config, self._state, self._status = config, state, status
        self._members, self._measured = members, measured
        self._all_before: tuple[int, float] | None = None  # the last averaging of all: its round, and when

    def write(self, number: int, times: Times, work: Work, outcome: Outcome) -> None:
        """One averaging.

        Args:
            number: its round.
            times: of the round.
            work: what it brought.
            outcome: of the averaging.
        """
        state, group = self._state, outcome.averaged.group
        ended = self._members.now()
        of_all = state.commit is state.anchor
        line: dict[str, Any] = {
            "round": number,
            "all": of_all,
            "started_unix": round(times.started, 3),
            "due_unix": round(times.due, 3),
            "ended_unix": round(ended, 3),
            "train_seconds": round(work.train_seconds, 3),
            "averaging_seconds": round(ended - times.arrived, 3),
            "group": self._members_of(outcome),
            "total_tokens": state.commit.total_tokens,
            "weights_sha256": state.commit.digest,
            "epochs": epochs_of(state.commit.progress, state.supply.shards),
            "live": sorted(self._members.in_round(outcome.view, number) | set(group)),
        }
        gossip = self._members.gossip
        if gossip is not None:
            line["deaths"] = gossip.new_deaths()
        if of_all:
            line["since"] = times.since
            if before := self._all_before:
                seconds = (ended - before[1]) / max(1, number - before[0])
                self._measured.after(work, outcome.seconds, outcome.averaged.moved_bytes, seconds)
            self._all_before = (number, ended)
        self._status.add_progress(line)
        whom = "" if of_all else f": {' and '.join(sorted(group))}"
        self._status.set(
            "training",
            f"round {number} averaged by {len(group)} of {len(self._config.nodes)} nodes{whom}",
            round=number,
            loss=work.loss,
            tokens_per_second=round(self._members.speed, 1),
            **({} if gossip is None else {"deaths": gossip.deaths(), "health": round(gossip.health, 3)}),
            **state.commit.to_status(),
        )

    def _members_of(self, outcome: Outcome) -> list[dict[str, Any]]:
        group, gossip = outcome.averaged.group, self._members.gossip
        shares = dict.fromkeys(group, (1.0, 1.0))
        if gossip is not None:
            shares = gossip.shares({node: member.tokens_per_second for node, member in group.items()})
        return [
            {**group[node].to_progress(), "health": shares[node][0], "work_share": shares[node][1]}
            for node in sorted(group)
        ]
