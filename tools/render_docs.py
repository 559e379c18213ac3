"""Writes the parts of the documents that the code itself says: `python tools/render_docs.py`.

It owns the marked blocks and nothing around them; tests/unit/test_docs.py fails while a block is stale.
"""

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from api.measures import Families as ApiFamilies  # noqa: E402
from api.settings import ApiSettings  # noqa: E402
from jobs.metrics import Family, Histogram  # noqa: E402
from jobs.settings import ENV_PREFIX, StoreSettings  # noqa: E402
from jobs.state import diagram  # noqa: E402
from workers.measures import Families as WorkerFamilies  # noqa: E402
from workers.settings import WorkerSettings  # noqa: E402
from workers.webhooks.measures import Families as WebhookFamilies  # noqa: E402
from workers.webhooks.settings import WebhookWorkerSettings  # noqa: E402

PROCESSES: Final[dict[str, type[StoreSettings]]] = {
    "api": ApiSettings,
    "workers": WorkerSettings,
    "webhook workers": WebhookWorkerSettings,
}
_COMPUTED: Final = {"prepare_threads": "one per core"}


def settings_table() -> str:
    """Every setting of every process, once each, in the order of its class."""
    lines = ["| variable | read by | default | meaning |", "|---|---|---|---|"]
    shared = list(StoreSettings.model_fields)
    names = list(dict.fromkeys([*shared, *(name for cls in PROCESSES.values() for name in cls.model_fields)]))
    for name in names:
        readers = [process for process, cls in PROCESSES.items() if name in cls.model_fields]
        field = PROCESSES[readers[0]].model_fields[name]
        who = "every process" if name in shared else ", ".join(readers)
        default = _COMPUTED.get(name) or default_text(field.default)
        meaning = "; ".join(dict.fromkeys(str(PROCESSES[each].model_fields[name].description) for each in readers))
        lines.append(f"| `{ENV_PREFIX}{name.upper()}` | {who} | {f'`{default}`' if default else 'none'} | {meaning} |")
    return "\n".join(lines)


def default_text(value: Any) -> str:
    """A default as it would stand in the environment; '' for none."""
    match value:
        case None:
            return ""
        case bool():
            return str(int(value))
        case float():
            return f"{value:g}"
        case tuple():
            return ",".join(map(default_text, value))
        case SecretStr():
            return value.get_secret_value()
        case _:
            return str(value)


def state_diagram() -> str:
    """The state table as a fenced diagram."""
    return f"```mermaid\n{diagram()}\n```"


FAMILIES: Final[dict[str, Sequence[Family | Histogram]]] = {
    "api": ApiFamilies().all(),
    "worker": WorkerFamilies().all(),
    "webhook-worker": WebhookFamilies().all(),
}
"""What each kind of process shows to Prometheus."""


def metrics_table(kind: str) -> str:
    """Every metric of one kind of process."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for each in FAMILIES[kind]:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        lines.append(f"| `{each.name}` | {each.kind} | {labels or 'none'} | {each.help} |")
    return "\n".join(lines)


BLOCKS: Final[tuple[tuple[str, str, Callable[[], str]], ...]] = (
    ("README.md", "settings", settings_table),
    ("ARCHITECTURE.md", "states", state_diagram),
    *(("docs/metrics.md", f"metrics-{kind}", partial(metrics_table, kind)) for kind in FAMILIES),
)


def rendered(text: str, name: str, block: str) -> str:
    """The text with what stands between the block's markers replaced; ValueError where they are missing."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    fresh, count = pattern.subn(lambda match: f"{match[1]}\n{block}\n\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"expected one block <!-- {name} --> … <!-- /{name} -->, found {count}")
    return fresh


def main() -> None:
    """Bring every block up to date."""
    for file, name, render in BLOCKS:
        path = ROOT / file
        path.write_text(rendered(path.read_text(), name, render()))


if __name__ == "__main__":
    main()
