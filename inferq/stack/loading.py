"""How far a starting Triton has come, told from its log: it says what it loads, and may wait for ever.

Owns the few sentences of that log which matter. Must not read files or processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

SHOWN_MODELS = 5
STARTING = "starting"
LOADING = re.compile(r'model_lifecycle\.cc:\d+\] "loading: (?P<model>.+):-?\d+"')
LOADED = re.compile(r"model_lifecycle\.cc:\d+\] \"(?:successfully loaded|failed to load) '(?P<model>.+)'\"")
STARTED = re.compile(r'grpc_server\.cc:\d+\] "Started GRPCInferenceService')
NEVER = re.compile(r"Failed to preinitialize Python stub: (?P<said>.+)")
"""After this line Triton 2.51 waits for ever: the model's Python process is gone before it could say so."""
FAILED = re.compile(
    r"E\d{4} .*(?P<said>\"(?:failed to load '.*' version |failed to load model '|Poll failed for model ).*)"
)
"""After this one it ends, but only when all other models are loaded, which may take minutes."""
UNREAD = re.compile(
    r"E\d{4} .*\"(?:Poll failed for model (?:directory )?|failed to poll model )'(?P<model>[^']+)': (?P<why>.+)\""
)
"""A model that is none to Triton from then on: where it starts without, not even its index has it."""
PLACE = re.compile(r"\[libprotobuf ERROR [^\]]*\] (?P<said>(?:Error parsing text-format \S+: )?(?P<place>.+))")
"""Where in a `config.pbtxt` the fault is; the model is named by a line that follows."""


class Progress(NamedTuple):
    """What a server does before it is ready, '' for nothing that it tells of; and why it never will be, if so."""

    doing: str = ""
    faults: tuple[str, ...] = ()


def progress_of(log: Iterable[str], *, may_fail: bool = False) -> Progress:
    """From the lines since Triton's start; with `may_fail` it starts without the models that can't be loaded."""
    loading: dict[str, None] = {}
    faults: dict[str, None] = {}
    places: list[str] = []
    for line in log:
        if STARTED.search(line):
            return Progress()
        if found := PLACE.match(line):
            places.append(found["said"])
            continue
        if found := LOADING.search(line):
            loading[found["model"]] = None
        elif found := LOADED.search(line):
            loading.pop(found["model"], None)
        elif found := NEVER.search(line) or (None if may_fail else FAILED.search(line)):
            faults |= dict.fromkeys([*places, found["said"]])
            places.clear()
    return Progress(_words(list(loading)), tuple(faults))


def unread_models(log: Iterable[str]) -> dict[str, str]:
    """The models that Triton, started without them, knows nothing of since it could not read them; and why not."""
    unread: dict[str, str] = {}
    place = ""
    for line in log:
        if STARTED.search(line):
            break
        if found := PLACE.match(line):
            place = place or f": {found['place']}"
        elif found := UNREAD.search(line):
            unread[found["model"]] = found["why"] + place
            place = ""
    return unread


def _words(models: list[str]) -> str:
    if not models:
        return STARTING
    more = f" and {len(models) - SHOWN_MODELS} more" if len(models) > SHOWN_MODELS else ""
    return f"loading model{'s' if len(models) > 1 else ''} {', '.join(models[:SHOWN_MODELS])}{more}"
