"""Places in shared memory: nobody is given what somebody holds, and nothing is ever lost."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from workers.triton.arena import ALIGNMENT, Arena

NBYTES = 64 * ALIGNMENT
REST_SECONDS = 5.0

sizes = st.integers(0, 20 * ALIGNMENT)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), sizes),
        st.tuples(st.sampled_from(["give", "rest"]), st.integers(0, 99)),
        st.tuples(st.just("wait"), st.integers(0, 4)),
    ),
    max_size=80,
)


@given(steps)
def test_whatever_is_taken_and_given_back_nothing_overlaps_and_in_the_end_all_is_free(
    run: list[tuple[str, int]],
) -> None:
    arena = Arena(NBYTES)
    now = 0.0
    held: list[tuple[int, int]] = []
    resting: list[tuple[float, int, int]] = []
    for verb, number in run:
        if verb == "take":
            offset = arena.take(number, now)
            taken = [*held, *((start, nbytes) for until, start, nbytes in resting if until > now)]
            if offset is None:
                assert taken or number > NBYTES
                continue
            assert offset % ALIGNMENT == 0
            assert 0 <= offset <= offset + number <= NBYTES
            for start, nbytes in taken:
                assert offset + max(number, 1) <= start or start + max(nbytes, 1) <= offset
            held.append((offset, number))
        elif verb == "wait":
            now += number
        elif held:
            place = held.pop(number % len(held))
            arena.give_back(*place, now, REST_SECONDS if verb == "rest" else 0.0)
            if verb == "rest":
                resting.append((now + REST_SECONDS, *place))
    for place in held:
        arena.give_back(*place, now)
    assert arena.take(NBYTES, now + REST_SECONDS) == 0


@given(st.lists(sizes.filter(bool), min_size=1, max_size=12), st.randoms())
def test_places_given_back_in_any_order_join_again(wanted: list[int], order: Random) -> None:
    arena = Arena(NBYTES)
    held = [(offset, nbytes) for nbytes in wanted if (offset := arena.take(nbytes, 0.0)) is not None]
    order.shuffle(held)
    for place in held:
        arena.give_back(*place, 0.0)
    assert arena.take(NBYTES, 0.0) == 0


def test_a_place_rests_to_the_second() -> None:
    arena = Arena(NBYTES)
    assert arena.take(NBYTES, 0.0) == 0
    arena.give_back(0, NBYTES, 1.0, REST_SECONDS)
    assert arena.take(1, 5.9) is None
    assert arena.take(1, 6.0) == 0


def test_no_memory_has_no_places() -> None:
    assert Arena(0).take(1, 0.0) is None
