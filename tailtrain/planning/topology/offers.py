"""What the choice of a topology starts from (nodes, links, the job, limits) and what it ends in."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - kept topologies are read by these annotations
from dataclasses import dataclass, field
from enum import StrEnum

DAY_SECONDS = 86_400.0
_FLOPS_OF_A_CORE = 5e9  # what torch got from one core of several machines, within a factor of two
_FLOPS_OF_A_GPU = 5e12
_FLOPS_PER_PARAMETER = 6


class Way(StrEnum):
    """How weights are averaged."""

    STAR = "star"
    GROUP = "group"
    PAIRS = "pairs"


class Compression(StrEnum):
    """In what form weights travel."""

    NONE = "none"
    FP16 = "fp16"
    INT8 = "8-bit"


class Role(StrEnum):
    """What a node does."""

    TRAINS = "trains"
    DATA = "keeps data and validates"


@dataclass(frozen=True)
class Offer:
    """What a node has, measured or guessed.

    Attributes:
        node: its name.
        cores: those that it may use, for the comparison with shares by cores.
        tokens_per_second: its speed (times its health).
        memory_bytes: what its worker may use.
        disk_bytes: what is free for chunks, checkpoints left out.
        bytes_per_second: what its link, or its processor while averaging, moves in each direction at once.
        round_trip_seconds: to the other nodes, where `Link` does not say more.
        training_bytes: memory that its worker needs, where that is not what the job says (on a GPU).
    """

    node: str
    cores: int
    tokens_per_second: float
    memory_bytes: int
    disk_bytes: int
    bytes_per_second: float
    round_trip_seconds: float = 0.001
    training_bytes: int | None = None


@dataclass(frozen=True)
class Link:
    """The path between two nodes, where it is another than their offers say.

    Attributes:
        bytes_per_second: in each direction.
        round_trip_seconds: of a small message.
        direct: False where it goes over a relay.
    """

    bytes_per_second: float
    round_trip_seconds: float
    direct: bool = True


@dataclass(frozen=True)
class Job:
    """What is to be trained.

    Attributes:
        parameters: of the model.
        batch_tokens: tokens in one step.
        target_tokens: of the whole run.
        training_bytes: memory that a worker needs (`memory.memory_needed`).
        validation_bytes: memory that a node needs to keep data and validate the final model.
        data_bytes: all training records; a node keeps its share of them on its disk.
        primary: the node that reduces alone in a star.
        sharded: False where every node has all data.
    """

    parameters: int
    batch_tokens: int
    target_tokens: int
    training_bytes: int
    validation_bytes: int
    data_bytes: int
    primary: str
    sharded: bool = True


@dataclass(frozen=True)
class Limits:
    """Within what the choice is made.

    Attributes:
        ways: what the coordination protocol can do, the simplest first.
        compressions: what is allowed, the most exact first.
        all_each: every how many rounds all average together, where pairs do.
        least_round_seconds: the shortest training of a round.
        most_round_seconds: the longest.
        most_averaging_seconds: the longest averaging. hivemind's connections break on a link that is full for
            longer than 30 s: of averagings of 45 s none was whole (measured, one node of four at 2 Mbit/s).
        most_steps: the fastest node's steps between two averagings of all. Published runs match synchronous
            training with 500 (DiLoCo, arXiv 2311.08105).
        least_averagings: of the whole run, so that a short run averages at all.
        failures_per_day: of each node; its work since the last averaging is lost.
        least_gain: how much faster (a share) something less simple or less exact has to be to be taken.
        keep_all: whether every node that can train has to; else one with a slow link may be left out.
    """

    ways: tuple[Way, ...] = (Way.GROUP, Way.PAIRS)
    compressions: tuple[Compression, ...] = (Compression.NONE, Compression.FP16, Compression.INT8)
    all_each: tuple[int, ...] = (2, 4, 8)
    least_round_seconds: float = 2.0
    most_round_seconds: float = 600.0
    most_averaging_seconds: float = 25.0
    most_steps: int = 500
    least_averagings: int = 10
    failures_per_day: float = 1.0
    least_gain: float = 0.02
    keep_all: bool = True


@dataclass(frozen=True)
class Overheads:
    """What an averaging costs beside moving bytes; to be fitted to the averagings that were measured.

    Attributes:
        matchmaking_seconds: until a group is together: 0.2 to 0.6 s where its size is known beforehand.
        round_trips: sequential round trips in one averaging: look up, join, send, receive.
        part_bytes: what travels at once, at most; a reducer answers the first part when it has it from all.
        least_part_bytes: at least.
        parts: in how many parts weights travel otherwise.
    """

    matchmaking_seconds: float = 0.4
    round_trips: float = 4.0
    part_bytes: float = 524_288.0
    least_part_bytes: float = 16_384.0
    parts: int = 32


@dataclass(frozen=True)
class Prediction:
    """A round as predicted.

    Attributes:
        training_seconds: until the last node has done its work.
        averaging_seconds: on average over the rounds.
        tokens: trained in a round by all.
        ideal_tokens_per_second: the sum of the speeds of all that train.
    """

    training_seconds: float
    averaging_seconds: float
    tokens: float
    ideal_tokens_per_second: float

    @property
    def seconds(self) -> float:
        """The whole round."""
        return self.training_seconds + self.averaging_seconds

    @property
    def tokens_per_second(self) -> float:
        """Of the fleet."""
        return self.tokens / self.seconds

    @property
    def utilisation(self) -> float:
        """The fleet's tokens per second against what its nodes could do without waiting, from 0 to 1."""
        return self.tokens_per_second / self.ideal_tokens_per_second


@dataclass(frozen=True)
class Topology:
    """What was chosen, and what is expected of it.

    Attributes:
        roles: of every node.
        reasons: why a node does not train.
        shares: of the training records and of a round's work; 0 for who does not train.
        reducers: which part of the weights each node averages for all, where all average.
        way: how weights are averaged; with pairs, all together every `all_each` rounds.
        all_each: 1 where always all do.
        compression: in what form weights travel.
        steps: of each node in a round.
        prediction: of a round.
        by_cores: of the same tokens shared out by cores, averaged plainly: all, uncompressed, equal parts.
        equal: as `by_cores`, with equal shares.
        fastest: the fastest node's tokens per second.
        warning: what is expected to go wrong all the same; empty where nothing is.
        longest_averaging: seconds that an averaging of all is predicted to take.
        speeds: tokens per second that each node was taken to train.
        guessed: the nodes of which that is a guess, since nobody has measured them yet.
    """

    roles: Mapping[str, Role]
    reasons: Mapping[str, str]
    shares: Mapping[str, float]
    reducers: Mapping[str, float]
    way: Way
    all_each: int
    compression: Compression
    steps: Mapping[str, int]
    prediction: Prediction
    by_cores: Prediction
    equal: Prediction
    fastest: float
    warning: str = ""
    longest_averaging: float = 0.0
    speeds: Mapping[str, float] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()

    @property
    def ideal(self) -> float:
        """How many times as fast as its fastest node the fleet can be at most: sum of speeds / highest."""
        return self.prediction.ideal_tokens_per_second / self.fastest

    @property
    def speedup(self) -> float:
        """How many times as fast as its fastest node alone the fleet is expected to be."""
        return self.prediction.tokens_per_second / self.fastest


def first_guess(cores: float, parameters: int, *, gpu: bool = False) -> float:
    """Tokens per second of a node that nobody has measured yet.

    Training takes about 6 operations per parameter and token (Kaplan et al., arXiv 2001.08361). The measured
    speed of the first round takes its place.
    """
    return (_FLOPS_OF_A_GPU if gpu else _FLOPS_OF_A_CORE * cores) / (_FLOPS_PER_PARAMETER * parameters)
