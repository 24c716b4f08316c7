"""What was measured: kept in pyperf's form, and told as a table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyperf

if TYPE_CHECKING:
    from pathlib import Path

# What is kept of the machine: nothing that tells whose it is.
_FACTS = ("cpu_count", "cpu_model_name", "platform", "python_version", "date")


@dataclass
class Results:
    """Seconds by benchmark, each with its rounds in order; and what was in use of memory, in bytes."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    facts: dict[str, int | str] = field(default_factory=dict)

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
        benchmarks = []
        for name, values in self.seconds.items():
            metadata: dict[str, int | str] = {**facts, "name": name, "unit": "second"}
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


def machine() -> dict[str, int | str]:
    """Facts about this machine and moment that figures depend on."""
    found = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    return {fact: found[fact] for fact in _FACTS if fact in found}
