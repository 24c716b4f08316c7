"""What came of getting many chunks: counted per source, compared with what was planned, and put in words.

Runs on the nodes: standard library only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.data.pull_source import Chunk, Kind, SourceError

_PASSING = ("unreachable", "limit")


@dataclass
class Pulled:
    """What came of it.

    Attributes:
        asked: how many chunks were asked for.
        wanted: those that were not there, by their hash.
        came: the source of each that came.
        problems: what was wrong with each source that did not give a chunk.
        error: what is wrong with the folder, in plain words.
    """

    asked: int
    wanted: Mapping[str, Chunk]
    came: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, Mapping[str, SourceError]] = field(default_factory=dict)
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all chunks are there now."""
        return self.error is None and len(self.came) == len(self.wanted)

    def worth_a_retry(self) -> list[Chunk]:
        """Chunks that no source gave, each with those sources that may give it after all."""
        again = []
        for chunk in self._failed():
            problems = self.problems.get(chunk.sha256, {})
            order = tuple(
                name for name in chunk.order if name in problems and problems[name].kind in _PASSING
            )
            if order:
                again.append(replace(chunk, order=order))
        return again

    def answer(self, seconds: float) -> dict[str, Any]:
        """Put it in the words of the program's answer; see `tailtrain.data.pull`."""
        sources: dict[str, dict[str, int]] = {
            name: {"chunks": 0, "bytes": 0} for chunk in self.wanted.values() for name in chunk.order
        }
        instead: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for sha256, name in self.came.items():
            chunk = self.wanted[sha256]
            sources[name]["chunks"] += 1
            sources[name]["bytes"] += chunk.size
            if name != chunk.order[0]:
                instead[chunk.order[0]][name] += 1
        return {
            "ok": self.ok,
            "received": len(self.came),
            "skipped": self.asked - len(self.wanted),
            "bytes": sum(source["bytes"] for source in sources.values()),
            "seconds": round(seconds, 3),
            "error": self.error,
            "sources": sources,
            "instead": {name: dict(counts) for name, counts in instead.items()},
            "failed": self._last_words(),
            "passed_over": self._passed_over(),
        }

    def _failed(self) -> list[Chunk]:
        return [chunk for chunk in self.wanted.values() if chunk.sha256 not in self.came]

    def _last_words(self) -> list[dict[str, Any]]:
        return [
            {"sha256": chunk.sha256, "source": name, "kind": problem.kind, "why": str(problem)}
            for chunk in self._failed()
            for name, problem in self.problems.get(chunk.sha256, {}).items()
        ]

    def _passed_over(self) -> list[dict[str, Any]]:
        found: defaultdict[tuple[str, Kind], list[tuple[str, str]]] = defaultdict(list)
        for sha256, problems in self.problems.items():
            if sha256 in self.came:
                for name, problem in problems.items():
                    found[name, problem.kind].append((sha256, str(problem)))
        return [
            {
                "source": name,
                "kind": kind,
                "chunks": len(cases),
                "sha256": [sha256 for sha256, _ in cases],
                "why": cases[0][1],
            }
            for (name, kind), cases in found.items()
        ]
