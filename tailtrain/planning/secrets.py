"""Secrets in texts that are shown: what is found to be one is replaced, whole, by `***`.

A value is a secret where its name says so (`token`, `password`, `api_key`, ... in JSON, YAML, TOML, INI, unit
files, command lines and addresses), where it has the shape of a well-known token, or stands in a PEM block.
Counts (`target_tokens`), hashes, peer ids and public keys are none. In doubt more is masked, never less.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MASK = "***"

_STRONG = re.compile(
    r"token(?!i[sz])|passw|passphrase|secret|credential|apikey|authkey|privatekey|accesskey|authorization|bearer"
)
_WORDS = frozenset(("key", "keys", "pwd", "pass", "psk"))
_ABOUT = frozenset(("public", "pub", "expires", "expiry", "expired", "path", "file", "type"))
_COUNTS = frozenset(("tokens", "keys", "days", "bytes", "count", "length", "size", "limit", "per", "seconds"))
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_SUSPICIOUS = re.compile(
    rf"{_STRONG.pattern}|(?<![a-z])(?:key|pwd|pass|psk)|api.key|private.key|access.key|auth.key"
    r"|://|basic |hf_|tskey|gh[a-z]_|github_|gl[a-z]+-|akia|asia|xox|sk-|npm_|pypi-|aiza|ya29|eyj",
    re.IGNORECASE,
)
# A name, perhaps in quotes that are themselves escaped, and what sets it off from its value.
_NAMED = re.compile(
    r"""(?: (?P<quote>\\*["']) (?P<quoted>[^"'\\\n]{1,100}+) (?P=quote)
          | (?<![\w.-]) (?P<flag>(?=-))? (?P<bare>[\w.-]++) )
        (?: [ \t]* (?: ={1,3}>? | :=+ | [+?]= | :(?![:/\\]) ) [ \t]* | (?(flag)[ \t]+|(?!)) )""",
    re.VERBOSE,
)
_PEM = re.compile(r"-----BEGIN [^-\n]*-----(.*?)(?:-----END [^-\n]*-----|\Z)", re.DOTALL)
_SHAPED = re.compile(
    r"""://[^/\s:@]*:(?P<login>[^/\s@]+)@
      | ://(?P<user>[^/\s:@]{8,})@
      | \b(?:[Bb]earer|[Bb]asic)[ ]+(?P<header>[\w+/=.~-]{8,})
      | (?<![A-Za-z0-9])(?P<known>
            hf_\w{6,} | tskey-[\w-]+ | gh[a-z]_\w{6,} | github_pat_\w+ | gl[a-z]{2,4}-[\w-]{16,}
          | (?:AKIA|ASIA)[A-Z0-9]{12,} | xox[a-z]-[\w-]+ | sk-[\w-]{16,} | npm_\w{16,} | pypi-[\w-]{16,}
          | AIza[\w-]{30,} | ya29\.[\w-]+ | eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)? )""",
    re.VERBOSE,
)
_ENDS_JSON, _ENDS_LINE = r"[ \t]*(?:[,}\]]|$)", r"[ \t]*[,;]?[ \t]*$"
_NONE = r"(?:null|none|true|false|yes|no|on|off)"
_NUMBER = r"-?\d[\d_,]*(?:\.\d+)?(?:[eE][-+]?\d+)?"
_NONE_IN_JSON, _NONE_ON_LINE, _NUMBER_IN_JSON, _NUMBER_ON_LINE = (
    re.compile(value + ends, re.IGNORECASE | re.MULTILINE)
    for value in (_NONE, _NUMBER)
    for ends in (_ENDS_JSON, _ENDS_LINE)
)
_QUOTED = re.compile(r"\"\"\"|'''|\\*[\"']")
_BLOCK = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?$", re.MULTILINE)
_PROSE = re.compile(r"[\s\w.,+*#;!-]*")
_CLOSING = {"{": "}", "[": "]", "(": ")"}


@dataclass(frozen=True)
class MaskedLine:
    """A line around its secrets: `pieces` is one longer than `secrets`, which are (name, value)."""

    pieces: tuple[str, ...]
    secrets: tuple[tuple[str, str], ...] = ()

    def shown(self, marks: tuple[str, ...] = ()) -> str:
        """The line with a mask for each secret, followed by its mark, such as ` (changed)`."""
        marks = marks or ("",) * len(self.secrets)
        return self.pieces[0] + "".join(
            f"{MASK}{mark}{piece}" for mark, piece in zip(marks, self.pieces[1:], strict=True)
        )


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret, whatever it looks like."""
    parts = {part.lower() for part in _PARTS.findall(name)}
    joined = re.sub(r"[^a-z]", "", name.lower())
    return bool(_STRONG.search(joined) or parts & _WORDS) and not parts & _ABOUT


def masked(text: str) -> str:
    """A text with `***` in place of each secret, and as many lines as before."""
    return "\n".join(line.shown() for line in masked_lines(text))


def masked_lines(text: str) -> list[MaskedLine]:
    """The lines of a text (between line feeds), each around its secrets."""
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    spans = iter(_apart([*_pem(text), *_shaped_and_named(text, lines, starts)]))
    span = next(spans, None)
    found = []
    for line, start in zip(lines, starts, strict=False):
        pieces, secrets, at, end = [], [], start, start + len(line)
        while span and span[0] < end:
            begin, stop, name = max(span[0], start), min(span[1], end), span[2]
            if begin < stop:
                pieces.append(text[at:begin])
                secrets.append((name, text[begin:stop]))
                at = stop
            if span[1] > end:
                break
            span = next(spans, None)
        found.append(MaskedLine((*pieces, text[at:end]), tuple(secrets)))
    return found


_Span = tuple[int, int, str]
"""Where a secret begins and ends, and its name."""


def _apart(spans: list[_Span]) -> list[_Span]:
    """In their order; those that overlap become one."""
    apart: list[_Span] = []
    for start, stop, name in sorted(spans):
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(stop, apart[-1][1]), apart[-1][2])
        elif start < stop:
            apart.append((start, stop, name))
    return apart


@lru_cache(maxsize=8192)  # The files of a fleet's hosts are the same line by line, but for a few.
def _suspicious(line: str) -> bool:
    return _SUSPICIOUS.search(line) is not None


def _pem(text: str) -> Iterator[_Span]:
    if "-----BEGIN " in text:
        yield from ((*match.span(1), "PEM") for match in _PEM.finditer(text))


def _shaped_and_named(text: str, lines: list[str], starts: list[int]) -> Iterator[_Span]:
    for line, start in zip(lines, starts, strict=False):
        if not _suspicious(line):
            continue
        for match in _SHAPED.finditer(text, start, start + len(line)):
            kind = match.lastgroup or ""
            yield (*match.span(kind), kind)
        for match in _NAMED.finditer(text, start, start + len(line)):
            name = match["quoted"] or match["bare"]
            if is_secret_name(name):
                begin, stop = _value(text, match, start)
                yield begin, stop, name.lstrip("-")


def _value(  # noqa: PLR0911 - each form that a value can have
    text: str, match: re.Match[str], line_start: int
) -> tuple[int, int]:
    """Where the value of a secret name begins and ends; nothing where it is plainly none."""
    at, name = match.end(), match["quoted"] or match["bare"]
    line_end = _line_end(text, at)
    if at == line_end:
        return at, _deeper(text, line_start, line_end)
    none, number = (_NONE_IN_JSON, _NUMBER_IN_JSON) if match["quoted"] else (_NONE_ON_LINE, _NUMBER_ON_LINE)
    if none.match(text, at) or (_counts(name) and number.match(text, at)):
        return at, at
    if quote := _QUOTED.match(text, at):
        return _inside_quotes(text, quote.end(), quote[0])
    if text[at] in _CLOSING:
        return at, _bracketed(text, at)
    if _BLOCK.match(text, at):
        return line_end, _deeper(text, line_start, line_end)
    before = text[match.start() - 1] if match.start() > line_start else ""
    if before and before in "\"'":
        return at, _inside_quotes(text, at, before)[1]
    if match["flag"] is None and _PROSE.fullmatch(text, line_start, match.start()):
        return at, _deeper(text, line_start, line_end)
    space = re.compile(r"\s|\Z").search(text, at)
    return at, space.start() if space else len(text)


def _counts(name: str) -> bool:
    return not _COUNTS.isdisjoint(part.lower() for part in _PARTS.findall(name))


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _deeper(text: str, line_start: int, line_end: int) -> int:
    """The end of a line and of those after it that belong to it: indented further, or after a backslash."""
    indent = _indent(text, line_start)
    end = line_end
    while end < len(text):
        following = _line_end(text, end + 1)
        blank = not text[end + 1 : following].strip()
        if not (
            text[end - 1] == "\\" or _indent(text, end + 1) > indent or (blank and following < len(text))
        ):
            break
        end = following
    return end


def _indent(text: str, at: int) -> int:
    line = text[at : _line_end(text, at)]
    return len(line) - len(line.lstrip(" \t"))


def _inside_quotes(text: str, at: int, quote: str) -> tuple[int, int]:
    """A quoted value without its quotes, but with what is glued to it, as shells do. Unclosed: to the end."""
    closing = re.compile(rf"(?<!\\){re.escape(quote)}").search(text, at)
    if closing is None:
        return at, len(text)
    glued = re.compile(r"[^\s,;})\]]*").match(text, closing.end())
    return at, glued.end() if glued and glued[0] else closing.start()


def _bracketed(text: str, at: int) -> int:
    """The end of a value in brackets; brackets in its strings do not count."""
    awaited: list[str] = []
    for token in re.compile(r'"(?:\\.|[^"\\])*"|[][(){}]').finditer(text, at):
        if token[0] in _CLOSING:
            awaited.append(_CLOSING[token[0]])
        elif awaited and token[0] == awaited[-1]:
            awaited.pop()
            if not awaited:
                return token.end()
    return len(text)
