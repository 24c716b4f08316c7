"""Pictures of bars in the charts' common style, drawn without any library."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from tests.bench.chart import BAR, GAP, STYLE, WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEFT, RIGHT = 232, 96


@dataclass(frozen=True)
class Bar:
    """One bar: what it is called, how long it is, what stands beside it, whether it is tailtrain's."""

    name: str
    value: float
    shown: str
    ours: bool = False


@dataclass(frozen=True)
class Panel:
    """Bars of one scale.

    Attributes:
        title: above them.
        bars: from top to bottom.
        begins: the value at the axis.
        ends: what is longer is cut off; None where nothing is.
    """

    title: str
    bars: Sequence[Bar]
    begins: float = 0.0
    ends: float | None = None


def draw(title: str, panels: Sequence[Panel], notes: Sequence[str]) -> str:
    """The chart as an SVG document."""
    body: list[str] = []
    height = 64
    for panel in panels:
        body.append(f'<text class="panel" x="16" y="{height + 14}">{escape(panel.title)}</text>')
        height += 26
        top = height
        for bar in panel.bars:
            body += _bar(panel, bar, height)
            height += BAR + GAP
        body.append(f'<line class="axis" x1="{LEFT}" y1="{top - 4}" x2="{LEFT}" y2="{height - 6}"/>')
        height += 14
    for note in notes:
        body.append(f'<text class="small" x="16" y="{height + 8}">{escape(note)}</text>')
        height += 18
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + 10}" role="img"'
        f' aria-label="{escape(_spoken(panels))}">\n<style>{STYLE}</style>\n'
        f'<text class="title" x="16" y="32">{escape(title)}</text>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _bar(panel: Panel, bar: Bar, top: int) -> Iterator[str]:
    most = WIDTH - LEFT - RIGHT
    ends = panel.ends if panel.ends is not None else max(each.value for each in panel.bars)
    wanted = (bar.value - panel.begins) / (ends - panel.begins) * most
    length, middle = min(max(wanted, 1.0), most), top + BAR / 2 + 5
    yield f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{escape(bar.name)}</text>'
    kind = "ours" if bar.ours else "other"
    yield f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" rx="3"/>'
    text = f"→ {bar.shown}" if wanted > most else bar.shown
    yield f'<text class="value" x="{LEFT + length + 8:.1f}" y="{middle}">{escape(text)}</text>'


def _spoken(panels: Sequence[Panel]) -> str:
    return ". ".join(
        f"{panel.title}: {', '.join(f'{bar.name} {bar.shown}' for bar in panel.bars)}" for panel in panels
    )
