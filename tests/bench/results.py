"""What was measured: kept in pyperf's form, and told as a table."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyperf

if TYPE_CHECKING:
    from pathlib import Path

# What is kept of the machine: nothing that tells whose it is.
_FACTS = ("cpu_count", "cpu_model_name", "platform", "python_version", "date", "load_avg_1min")
_FIGURES = "figures"


@dataclass
class Results:
    """What was measured.

    Attributes:
        seconds: by benchmark, its rounds in order.
        memory: by benchmark, what was in use at most, in bytes.
        facts: about the machine and the moment: the load average is that before the first round.
        figures: other numbers, such as bytes, by name.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    facts: dict[str, int | float | str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float, memory: int | None = None) -> None:
        """One more round."""
        self.seconds.setdefault(name, []).append(seconds)
        if memory is not None:
            self.memory[name] = max(memory, self.memory.get(name, 0))

    def median(self, name: str) -> float:
        """The middle round, in seconds."""
        return statistics.median(self.seconds[name])

    def ratio(self, slower: str, faster: str) -> float:
        """How many times longer one takes than the other, by their medians."""
        return self.median(slower) / self.median(faster)

    def save(self, path: Path) -> None:
        """Write all rounds as a pyperf suite: `python -m pyperf show FILE`, `compare_to`, `hist` read it."""
        facts = self.facts or machine()
        benchmarks: list[pyperf.Benchmark] = []
        for name, values in self.seconds.items():
            metadata: dict[str, int | float | str] = {**facts, "name": name, "unit": "second"}
            if self.figures and not benchmarks:
                metadata[_FIGURES] = json.dumps(self.figures)
            if name in self.memory:
                metadata["mem_max_rss"] = self.memory[name]
            run = pyperf.Run(values, metadata=metadata, collect_metadata=False)
            benchmarks.append(pyperf.Benchmark([run]))
        path.parent.mkdir(parents=True, exist_ok=True)
        pyperf.BenchmarkSuite(benchmarks).dump(str(path), replace=True)

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote."""
        found = cls()
        for benchmark in pyperf.BenchmarkSuite.load(str(path)):
            name, metadata = benchmark.get_name(), benchmark.get_metadata()
            found.seconds[name] = list(benchmark.get_values())
            if "mem_max_rss" in metadata:
                found.memory[name] = metadata["mem_max_rss"]
            if _FIGURES in metadata:
                found.figures = json.loads(metadata[_FIGURES])
            found.facts = {fact: metadata[fact] for fact in _FACTS if fact in metadata}
        return found

    def table(self) -> str:
        """All benchmarks: median, the fastest and slowest round, and memory where that was measured."""
        width = max(map(len, self.seconds))
        lines = [f"{'':{width}}  median s     from       to  rounds  peak MB"]
        for name, values in self.seconds.items():
            peak = f"{self.memory[name] / 1e6:8.0f}" if name in self.memory else ""
            lines.append(
                f"{name:{width}}  {self.median(name):8.2f} {min(values):8.2f} {max(values):8.2f}"
                f"  {len(values):6}  {peak}".rstrip()
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Target:
    """What was promised of a figure: at most the limit, or where `least`, at least."""

    name: str
    value: float
    limit: float
    unit: str
    least: bool = False

    @property
    def missed(self) -> bool:
        """Whether the promise is broken."""
        return self.value < self.limit if self.least else self.value > self.limit

    def __str__(self) -> str:
        """Give one line of a table."""
        promise = f"of at {'least' if self.least else 'most'} {self.limit:g} {self.unit}"
        verdict = "missed" if self.missed else "met"
        return f"{self.name:56}  {self.value:7.2f} {self.unit:2} {promise:20}  {verdict}"


def machine() -> dict[str, int | float | str]:
    """Facts about this machine and moment that figures depend on."""
    found = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    return {fact: found[fact] for fact in _FACTS if fact in found}
