"""One log line form for every process: JSON on stderr, with ids bound where they are known.

It must never be handed payloads, keys or secrets; callers log ids, codes and counts.
"""

import logging
import os
import sys
from typing import Any

import structlog

from jobs.variables import unknown_variables

log = logging.getLogger(__name__)


def configure(level: str, process: str) -> None:
    """Send structlog's and the standard library's records through one JSON formatter; warn of unknown variables."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _name_process(process),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    for sentence in unknown_variables(os.environ):
        log.warning("%s", sentence)


def _name_process(process: str) -> Any:
    def add(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        event["process"] = process
        return event

    return add
