"""How long a silent peer is waited for: by what is usual, never for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailtrain.worker.peers.patience import Patience

silences = st.floats(0.0, 100.0)


def test_before_anything_is_known_a_peer_has_all_the_time_there_is() -> None:
    patience = Patience(10.0)
    patience.failed()
    assert patience.seconds == 10.0


def test_a_usual_silence_times_eight_is_allowed_and_two_seconds_at_least() -> None:
    patience = Patience(60.0)
    patience.succeeded(0.01)
    assert patience.seconds == 2.0
    patience.succeeded(1.5)
    assert patience.seconds == 12.0


def test_after_a_failure_there_is_twice_as_much_time() -> None:
    patience = Patience(60.0)
    patience.succeeded(0.01)
    patience.failed()
    assert patience.seconds == 4.0
    patience.failed()
    assert patience.seconds == 8.0


@given(most=st.floats(2.0, 600.0), events=st.lists(st.none() | silences, max_size=20))
def test_it_stays_within_its_bounds(most: float, events: list[float | None]) -> None:
    patience = Patience(most)
    for silence in events:
        if silence is None:
            patience.failed()
        else:
            patience.succeeded(silence)
        assert 2.0 <= patience.seconds <= most
        if silence is not None:
            assert patience.seconds >= min(most, 8.0 * silence)
