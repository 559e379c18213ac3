"""The life of a job as one table: states, events, and what each event may do in each state.

The Lua scripts and store methods carry the events' names; what the table lacks is refused and changes nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """Where a job is; the last four absorb."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can change this state any more."""
        return self in TERMINAL


TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED, State.EXPIRED})


class Event(StrEnum):
    """What can happen to a job."""

    SUBMIT = "submit"
    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"
    RETRY = "retry"
    RELEASE = "release"
    REAP = "reap"
    CANCEL = "cancel"
    EXPIRE = "expire"


class IllegalTransition(ValueError):
    """The table has no such event in this state."""


_Q, _P = State.QUEUED, State.IN_PROGRESS

TRANSITIONS: Final[Mapping[tuple[State | None, Event], frozenset[State]]] = MappingProxyType(
    {
        (None, Event.SUBMIT): frozenset({State.QUEUED}),
        (_Q, Event.CLAIM): frozenset({State.IN_PROGRESS}),
        (_Q, Event.CANCEL): frozenset({State.CANCELED}),
        (_Q, Event.EXPIRE): frozenset({State.EXPIRED}),
        (_P, Event.SUCCEED): frozenset({State.SUCCEEDED}),
        (_P, Event.FAIL): frozenset({State.FAILED}),
        (_P, Event.RETRY): frozenset({State.QUEUED}),
        (_P, Event.RELEASE): frozenset({State.QUEUED}),
        (_P, Event.REAP): frozenset({State.QUEUED, State.FAILED}),
        (_P, Event.CANCEL): frozenset({State.CANCELED}),
    }
)
"""(state, event) → the states that may follow; None is a job that does not exist yet."""


def following(state: State | None, event: Event) -> frozenset[State]:
    """The states that `event` may lead to from `state`; raises IllegalTransition where it may not happen."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"a job that is {state or 'unknown'} can't {event}") from None


def diagram() -> str:
    """The table as a Mermaid state diagram, in the table's order."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), targets in TRANSITIONS.items():
        for target in sorted(targets):
            arrows.setdefault((state or "[*]", target), []).append(event)
    lines = [f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in arrows.items()]
    ends = [f"    {state} --> [*]" for state in State if state.is_terminal]
    return "\n".join(["stateDiagram-v2", *lines, *ends])
