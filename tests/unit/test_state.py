"""The table of states and events is complete, closed and says what the diagram shows."""

from itertools import product

import pytest

from jobs.state import TERMINAL, TRANSITIONS, Event, IllegalTransition, State, diagram, following

PAIRS = list(product([None, *State], Event))


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_each_pair_is_in_the_table_or_refused(state: State | None, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert following(state, event) == TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"can't {event}"):
            following(state, event)


def test_each_event_can_happen_somewhere() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_each_state_can_be_reached_from_nothing() -> None:
    reached: set[State | None] = {None}
    while True:
        more = {target for (state, _), targets in TRANSITIONS.items() if state in reached for target in targets}
        if more <= reached:
            break
        reached |= more
    assert reached == {None, *State}


def test_terminal_states_absorb() -> None:
    assert {state for state, _ in TRANSITIONS if state in TERMINAL} == set()
    assert {state for state in State if state.is_terminal} == TERMINAL


def test_each_state_that_does_not_absorb_has_a_way_to_an_end() -> None:
    for state in set(State) - TERMINAL:
        assert any(targets & TERMINAL for (source, _), targets in TRANSITIONS.items() if source is state)


def test_the_table_can_not_be_changed() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[State.FAILED, Event.RETRY] = frozenset()  # type: ignore[index]


def test_the_diagram_draws_each_transition_once() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    for (state, event), targets in TRANSITIONS.items():
        for target in targets:
            arrow = f"    {state or '[*]'} --> {target}: "
            (line,) = (line for line in lines if line.startswith(arrow))
            assert event in line.removeprefix(arrow).split(", ")
    assert len(lines) == len(set(lines))
