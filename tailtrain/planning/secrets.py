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

# A line without any of these has no secret; one with them may.
_HINTS = re.compile(
    r"key|pwd|pass|psk|://|basic |hf_|tskey|gh[a-z]_|github_|gl[a-z]+-|akia|asia|xox|sk-|npm_|pypi-|aiza"
    r"|ya29|eyj"
)
# A name, perhaps in quotes that are themselves escaped, and what sets it off from its value.
_NAMED = re.compile(
    r"""(?: (?P<quote>\\*["']) (?P<quoted>[^"'\\\n]{1,100}+) (?P=quote)
          | (?<![\w.-]) (?P<flag>(?=-))? (?P<bare>[\w.-]++) )
        (?: [ \t]* (?P<sets_off> ={1,3}>? | :=+ | [+?]= | :(?![:/\\]) ) [ \t]* | (?(flag)[ \t]+|(?!)) )""",
    re.VERBOSE,
)
_PEM = re.compile(r"-----BEGIN [^-\n]*-----(.*?)(?:-----END [^-\n]*-----|\Z)", re.DOTALL)
_SHAPED = re.compile(
    r"""://[^/\s:@]*:(?P<login>\S+)@
      | ://(?P<user>[^/\s:@]{8,})@
      | \b(?:[Bb]earer|[Bb]asic)[ ]+(?P<header>[\w+/=.~-]{8,})
      | (?<![A-Za-z0-9])(?P<known>
            hf_\w{6,} | tskey-[\w-]+ | gh[a-z]_\w{6,} | github_pat_\w+ | gl[a-z]{2,4}-[\w-]{16,}
          | (?:AKIA|ASIA)[A-Z0-9]{12,} | xox[a-z]-[\w-]+ | sk-[\w-]{16,} | npm_\w{16,} | pypi-[\w-]{16,}
          | AIza[\w-]{30,} | ya29\.[\w-]+ | eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)? )""",
    re.VERBOSE,
)

# After a value: JSON goes on, a line is over, or a word is.
_JSON_GOES_ON, _LINE_IS_OVER, _WORD_IS_OVER = (
    r"""[ \t]*(?:[,:}\])]|\\*["']|$)""",
    r"[ \t]*[,;]?[ \t]*$",
    r"(?=\s)|\Z",
)
_NONE = r"(?:null|none|true|false|yes|no|on|off)"
_NUMBER = r"-?\d[\d_,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_NONE_IN_JSON, _NONE_ON_LINE, _NUMBER_IN_JSON, _NUMBER_ON_LINE = (
    re.compile(value + after, re.IGNORECASE | re.MULTILINE)
    for value in (_NONE, _NUMBER)
    for after in (_JSON_GOES_ON, _LINE_IS_OVER)
)
_AFTER_JSON, _AFTER_LINE, _AFTER_WORD = (
    re.compile(after, re.MULTILINE) for after in (_JSON_GOES_ON, _LINE_IS_OVER, _WORD_IS_OVER)
)
_SPACE = re.compile(r"\s")
_QUOTE = re.compile(r'"""|' + r"'''|" + r"""\\*["']""")
_PROSE = re.compile(r"[\s\w.,+*#;!-]*")
_BRACKETS = re.compile(r'"(?:\\.|[^"\\])*"|[][(){}]')
_CLOSING = {"{": "}", "[": "]", "(": ")"}

_Span = tuple[int, int, str]
"""Where a secret begins and ends, and its name."""


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
    return bool(_STRONG.search(_letters(name.lower())) or parts & _WORDS) and not parts & _ABOUT


def masked(text: str, *, prose: bool = False) -> str:
    """A text with `***` in place of each secret, and as many lines as before.

    Args:
        text: what is to be shown.
        prose: a sentence, in which `the token: it is wrong` is no value of that name; `token=it` still is.
    """
    return "\n".join(line.shown() for line in masked_lines(text, prose=prose))


def masked_lines(text: str, *, prose: bool = False) -> list[MaskedLine]:
    """The lines of a text (between line feeds), each around its secrets; `prose` as for `masked`."""
    lines = text.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    spans = iter(_apart([*_pem(text), *_shaped_and_named(text, lines, starts, prose=prose)]))
    span = next(spans, None)
    found = []
    for line, start in zip(lines, starts, strict=False):
        pieces, secrets, at, end = [], [], start, start + len(line)
        while span and span[0] < end:
            begin, stop = max(span[0], start), min(span[1], end)
            if begin < stop:
                pieces.append(text[at:begin])
                secrets.append((span[2], text[begin:stop]))
                at = stop
            if span[1] > end:
                break
            span = next(spans, None)
        found.append(MaskedLine((*pieces, text[at:end]), tuple(secrets)))
    return found


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text)


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
    lowered = line.lower()
    return bool(_HINTS.search(lowered) or _STRONG.search(_letters(lowered)))


def _pem(text: str) -> Iterator[_Span]:
    if "-----BEGIN " in text:
        yield from ((*match.span(1), "PEM") for match in _PEM.finditer(text))


def _shaped_and_named(text: str, lines: list[str], starts: list[int], *, prose: bool) -> Iterator[_Span]:
    for line, start in zip(lines, starts, strict=False):
        if not _suspicious(line):
            continue
        for match in _SHAPED.finditer(text, start, start + len(line)):
            kind = match.lastgroup or ""
            yield (*match.span(kind), kind)
        for match in _NAMED.finditer(text, start, start + len(line)):
            name = match["quoted"] or match["bare"]
            if prose and match["bare"] and match["sets_off"] == ":":
                continue
            if is_secret_name(name):
                yield (*_value(text, match, name, start), name.lstrip("-"))


def _value(text: str, match: re.Match[str], name: str, line_start: int) -> tuple[int, int]:
    """Where the value of a secret name begins and ends; nothing where it is plainly none."""
    at = match.end()
    if at == _line_end(text, at):
        return at, _deeper(text, line_start, at)
    none, number = (_NONE_IN_JSON, _NUMBER_IN_JSON) if match["quoted"] else (_NONE_ON_LINE, _NUMBER_ON_LINE)
    if none.match(text, at) or (_counts(name) and number.match(text, at)):
        return at, at
    around = text[match.start() - 1 : match.start()] if match["bare"] and match.start() > line_start else ""
    if around in ('"', "'"):  # "TOKEN=a b"
        return at, _closing_quote(text, at, around)[0]
    begin, stop, after = _delimited(text, at)
    starts_line = match["flag"] is None and _PROSE.fullmatch(text, line_start, match.start()) is not None
    is_over = _AFTER_JSON if match["quoted"] else _AFTER_LINE if starts_line else _AFTER_WORD
    if after > at and is_over.match(text, after):
        return begin, stop
    if starts_line:
        return at, _deeper(text, line_start, _line_end(text, after))
    space = _SPACE.search(text, after)
    return at, space.start() if space else len(text)


def _delimited(text: str, at: int) -> tuple[int, int, int]:
    """Begin and end of a value in quotes (without them) or brackets (with them), and where that is over."""
    if quote := _QUOTE.match(text, at):
        return quote.end(), *_closing_quote(text, quote.end(), quote[0])
    if text[at] in _CLOSING:
        stop = _bracketed(text, at)
        return at, stop, stop
    return at, at, at


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
        blank = not text[end + 1 : following].strip() and following < len(text)
        if not (blank or text[end - 1] == "\\" or _indent(text, end + 1) > indent):
            break
        end = following
    return end


def _indent(text: str, at: int) -> int:
    line = text[at : _line_end(text, at)]
    return len(line) - len(line.lstrip(" \t"))


def _closing_quote(text: str, at: int, quote: str) -> tuple[int, int]:
    """Where the next such quote begins and ends that is not escaped; the end of the text if there is none."""
    closing = re.compile(rf"(?<!\\){re.escape(quote)}").search(text, at)
    return closing.span() if closing else (len(text), len(text))


def _bracketed(text: str, at: int) -> int:
    """The end of a value in brackets; brackets in its strings do not count."""
    awaited: list[str] = []
    for token in _BRACKETS.finditer(text, at):
        if token[0] in _CLOSING:
            awaited.append(_CLOSING[token[0]])
        elif token[0] == awaited[-1]:
            awaited.pop()
            if not awaited:
                return token.end()
    return len(text)
