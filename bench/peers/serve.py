"""`python -m bench.peers.serve MODULE PORT`: a peer's api on uvicorn, served as the product serves its own."""

from __future__ import annotations

import importlib
import sys

import uvicorn


def main(module: str, port: str) -> None:
    """Serve until a signal."""
    app = importlib.import_module(f"bench.peers.{module}").app
    uvicorn.run(
        app, host="127.0.0.1", port=int(port), loop="uvloop", http="httptools", ws="none",
        access_log=False, log_level="warning", backlog=4096,
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
