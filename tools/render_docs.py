"""Writes the parts of README.md and ARCHITECTURE.md that the code itself says: `python tools/render_docs.py`.

It owns the marked blocks and nothing around them; tests/unit/test_docs.py fails while a block is stale.
"""

import re
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from api.settings import ApiSettings  # noqa: E402
from jobs.settings import ENV_PREFIX, StoreSettings  # noqa: E402
from jobs.state import diagram  # noqa: E402
from workers.settings import WorkerSettings  # noqa: E402
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


BLOCKS: Final = (("README.md", "settings", settings_table), ("ARCHITECTURE.md", "states", state_diagram))


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
