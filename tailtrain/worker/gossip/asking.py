"""What nodes ask each other through their agents.

Questions and answers are datagrams, which may be lost. Two questions:

- `STATES`: what does your agent hold of these nodes? `deaths` has the form and the rules.
- `HERE`: is your worker there, and what does it work on? An agent lives on when the worker beside it dies, so
  only the worker's own answer shows that it lives. The question says who asks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tailtrain.errors import PeerError
from tailtrain.worker.gossip import deaths
from tailtrain.worker.gossip.agent import MOST_PAYLOAD_BYTES
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tailtrain.worker.gossip.agent import Agent
    from tailtrain.worker.gossip.deaths import Answer

STATES = "states"
HERE = "here"

_ASK_SECONDS = (
    1.0  # answers were there after 0.2 to 0.5 s; a node that is starved of its processor needs more
)


def ask_states(agent: Agent, nodes: Sequence[str], expected: Collection[str]) -> dict[str, Answer]:
    """What the others hold of these nodes; answers that cannot be read are left out.

    Args:
        agent: through which it is asked.
        nodes: about whom.
        expected: whose answers are waited for.
    """
    answers: dict[str, Answer] = {}
    for number, batch in enumerate(deaths.batches(nodes, MOST_PAYLOAD_BYTES)):
        found: dict[str, Answer] = {}
        asked = agent.query(STATES, deaths.question(batch), seconds=_ASK_SECONDS, expected=expected)
        for observer, raw in asked.items():
            try:
                found[observer] = deaths.read_answer(raw, batch, observer)
            except PeerError as error:
                log(f"ignored: {error}")
        if number == 0:
            answers = found
            continue
        answers = {  # who answered one batch and not another gave no whole answer
            observer: deaths.Answer({**answers[observer].held, **each.held}, each.alive)
            for observer, each in found.items()
            if observer in answers
        }
    return answers


def ask_who_is_here(agent: Agent, expected: Collection[str], seconds: float) -> dict[str, str]:
    """What the workers of these nodes answer; who does not is asked again until the time is up."""
    ends = time.monotonic() + seconds
    found: dict[str, str] = {}
    while (missing := set(expected) - set(found)) and (left := ends - time.monotonic()) > 0:
        answers = agent.query(HERE, agent.name.encode(), seconds=min(_ASK_SECONDS, left), expected=missing)
        found |= {node: raw.decode(errors="replace") for node, raw in answers.items()}
    return found
