"""`python -m api` serves HTTP; `… check` says by its exit status whether that answers; `… keys` keeps the API keys.

`… settings` says, before anything starts, whether the environment can be used.
It turns failures of the start into one line and an exit status; what runs is in `api.server` and `api.keys_command`.
"""

import http.client
import logging
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

import uvloop

from api.keys_command import keys_command
from api.server import address, open_socket, serve
from api.settings import ApiSettings
from jobs import logs, memory
from jobs.connection import StoreMisconfigured
from jobs.settings import SettingsError, load

_CHECK_SECONDS = 3.0
_USAGE = "usage: python -m api [check | settings | keys …]"


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns the exit status: 0, 1 where it failed, 2 where it was asked wrongly."""
    if arguments[:1] == ["keys"]:
        return keys_command(arguments[1:])
    if arguments not in ([], ["check"], ["settings"]):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        settings = load(ApiSettings)
        if arguments == ["settings"]:
            return 0
        return check(settings) if arguments else run(settings)
    except SettingsError as exc:
        print(f"inferq api: {exc}", file=sys.stderr)
        return 2
    except StoreMisconfigured as exc:
        print(f"inferq api: {exc}", file=sys.stderr)
        return 1


def run(settings: ApiSettings) -> int:
    """Serve until told to stop."""
    memory.keep_freed_memory()
    logs.configure(settings.log_level, "api")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its milestones are logged here in our words
    uvloop.run(serve(settings, open_socket(settings)))
    return 0


def check(settings: ApiSettings) -> int:
    """0 where the configured address answers that it is alive, else 1 and a line that says why."""
    url = address(settings.host, settings.port)
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_CHECK_SECONDS)
    try:
        connection.request("GET", "/health/live")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as exc:
        print(f"{url} does not answer: {exc}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
