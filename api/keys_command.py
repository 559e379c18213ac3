"""`python -m api keys …`: make, list and revoke API keys in the Redis that INFERQ_REDIS_URL names.

It owns how that is asked and told. It needs no running api, so the first key can be made before there is one.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from jobs.apikeys import DEFAULT_SCOPES, ApiKey, ApiKeys, KeyRefused, KeyScope
from jobs.connection import Connection, StoreError
from jobs.record import LOCAL_TENANT
from jobs.settings import SettingsError, StoreSettings, load

FIRST: Final = "It is the first key: from now on every call needs one."
BEFORE_THE_FIRST: Final = (
    f"Jobs from before it belong to the tenant {LOCAL_TENANT}: only keys made with --tenant {LOCAL_TENANT} see them."
)
NO_KEY: Final = "there is no API key yet: whoever reaches the service may do everything"
ALL_REVOKED: Final = "every API key is revoked: nobody is let in before there is a new one"
REVOKED_WITHIN: Final = "It is refused everywhere within two seconds."


def keys_command(arguments: Sequence[str]) -> int:
    """Run one of the commands; returns the exit status: 0, 1 where it failed, 2 where it was asked wrongly."""
    asked = _parser().parse_args(arguments)
    try:
        asyncio.run(_run(asked, load(StoreSettings)))
    except (SettingsError, KeyRefused) as exc:
        print(f"inferq keys: {exc}", file=sys.stderr)
        return 2
    except StoreError as exc:
        print(f"inferq keys: {exc}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inferq keys", description="API keys. Once there is one, every call needs one."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="make a key and show it, this once")
    create.add_argument("name")
    create.add_argument(
        "--scope",
        type=_scopes,
        default=DEFAULT_SCOPES,
        help="submit,read,cancel,admin (all of these, and to send all undelivered webhooks again)",
    )
    create.add_argument("--models", type=_models, default=(), help="models that it may use, by commas; all by default")
    create.add_argument(
        "--tenant", default="", help="who owns what is submitted with it; called like the key by default"
    )
    create.add_argument("--weight", type=int, help="the tenant's share of a busy model, beside others' of 1")
    listing = commands.add_parser("list", help="every key that there is or was")
    listing.add_argument("--json", action="store_true")
    revoke = commands.add_parser("revoke", help="end a key for good")
    revoke.add_argument("name")
    commands.add_parser("check", help="exit with 0 where there is a key that lets somebody in")
    return parser


def _names(text: str) -> tuple[str, ...]:
    """What stands between commas; nothing between two is refused, for it may have been a name."""
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        raise argparse.ArgumentTypeError(f"{text!r} has nothing where a name should stand")
    return tuple(dict.fromkeys(parts))


def _models(text: str) -> tuple[str, ...]:
    """The models of a key; none at all would mean every model, which is said by leaving the option out."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it names no model; a key for all models is made without this option")
    return _names(text)


def _scopes(text: str) -> frozenset[KeyScope]:
    words = _names(text)
    unknown = [word for word in words if word not in set(KeyScope)]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no scope; there are {', '.join(KeyScope)}")
    return frozenset(map(KeyScope, words))


async def _run(asked: argparse.Namespace, settings: StoreSettings) -> None:
    try:
        connection = Connection.from_settings(settings)
    except ValueError as exc:
        raise SettingsError(f"INFERQ_REDIS_URL can't be used: {exc}") from exc
    try:
        await _COMMANDS[asked.command](ApiKeys(connection), asked)
    finally:
        await connection.close()


async def _create(api_keys: ApiKeys, asked: argparse.Namespace) -> None:
    is_first = await api_keys.live() is None
    token = await api_keys.create(
        asked.name, tenant=asked.tenant, scopes=asked.scope, models=asked.models, weight=asked.weight
    )
    print("Keep it: it is stored as a hash only and can't be shown again.", file=sys.stderr)
    if is_first:
        print(FIRST, file=sys.stderr)
        if (asked.tenant or asked.name) != LOCAL_TENANT:
            print(BEFORE_THE_FIRST, file=sys.stderr)
    print(token)


async def _list(api_keys: ApiKeys, asked: argparse.Namespace) -> None:
    weights = await api_keys.weights()
    shown = [_shown(key, weights) for key in await api_keys.all()]
    if asked.json:
        for line in shown:
            print(json.dumps(line))
        return
    rows = [[_cell(value) for value in line.values()] for line in shown]
    if not rows:
        print("There is no key yet: anybody on this machine may do everything.", file=sys.stderr)
        return
    heads = [name.upper() for name in shown[0]]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _shown(key: ApiKey, weights: dict[str, int]) -> dict[str, Any]:
    return {
        "name": key.name,
        "tenant": key.tenant,
        "weight": weights.get(key.tenant, 1),
        "scopes": sorted(key.scopes),
        "models": list(key.models) or None,
        "created": _instant(key.created_ms),
        "revoked": _instant(key.revoked_ms) if key.revoked_ms else None,
    }


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return ",".join(value) if isinstance(value, list) else str(value)


def _instant(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _revoke(api_keys: ApiKeys, asked: argparse.Namespace) -> None:
    await api_keys.revoke(asked.name)
    print(REVOKED_WITHIN, file=sys.stderr)


async def _check(api_keys: ApiKeys, asked: argparse.Namespace) -> None:
    live = await api_keys.live()
    if live is None:
        raise KeyRefused(NO_KEY)
    if not live:
        raise KeyRefused(ALL_REVOKED)


_COMMANDS: Final = {"create": _create, "list": _list, "revoke": _revoke, "check": _check}
