"""Keys: nothing that a client chooses can pass for another key, and the scripts spell none themselves."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jobs
from jobs import connection, keys
from jobs.store import new_job_id

LUA = Path(inspect.getfile(jobs)).parent / "lua"
relaxed = settings(max_examples=50, deadline=None)
SCRIPTS = sorted(path.stem for path in LUA.glob("[a-z]*.lua"))


def test_a_new_id_has_the_form_of_an_id_and_enough_randomness() -> None:
    """T: `GET /jobs/{id}`: 128 random bits."""
    ids = {new_job_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(keys.is_job_id(job_id) for job_id in ids)
    assert {position for job_id in ids for position in enumerate(job_id)} == {
        (i, digit) for i in range(keys.ID_LENGTH) for digit in "0123456789abcdef"
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 31,
        "0" * 33,
        "A" * 32,
        "g" * 32,
        "0" * 31 + "\n",
        "0" * 32 + "\n",
        " " + "0" * 31,
        "\u0660" * 32,
        "0" * 31 + "/",
    ],
)
def test_nothing_else_has_the_form_of_an_id(text: str) -> None:
    """T: `GET /jobs/{id}`: traversal, CRLF, other digits."""
    assert not keys.is_job_id(text)


tenants = st.text(max_size=8).filter(lambda text: ":" not in text)
anything = st.text(max_size=8)


@relaxed
@given(tenants, anything, tenants, anything)
def test_two_tenants_never_share_an_idempotency_key(tenant: str, key: str, other: str, other_key: str) -> None:
    """T: Idempotency-Key."""
    same = keys.idempotency_key(tenant, key) == keys.idempotency_key(other, other_key)
    assert same == ((tenant, key) == (other, other_key))


def test_a_tenant_that_could_pass_for_another_is_refused() -> None:
    with pytest.raises(ValueError, match="colon"):
        keys.idempotency_key("a:b", "c")


@relaxed
@given(anything)
def test_each_kind_of_key_has_a_prefix_of_its_own(name: str) -> None:
    made = [
        keys.job_key(name),
        keys.input_key(name),
        keys.output_key(name, 1),
        keys.ready_key(name),
        keys.scheduled_key(name),
        keys.leased_key(name),
        keys.wake_key(name),
        keys.share_key(name, ""),
        keys.turns_key(name),
        keys.rate_key(name),
        keys.index_key(name),
    ]
    assert len({key.split(":")[1] for key in made}) == len(made)
    assert all(key.startswith(keys.PREFIX) for key in made)
    assert keys.model_of_wake_key(keys.wake_key(name)) == name


def test_the_table_of_keys_names_each_of_them() -> None:
    table = {key.split("{")[0] for key in re.findall(r"`((?:inferq|arq):[^`]*)`", keys.__doc__ or "")}
    constants = {value for name, value in vars(keys).items() if name.endswith(("_KEY", "_CHANNEL"))}
    made = {
        function(*("" for _ in inspect.signature(function).parameters)).rstrip(":") + ":"
        for name, function in inspect.getmembers(keys, inspect.isfunction)
        if name.endswith("_key") and not name.startswith("model_of")
    }
    assert made | constants - {keys.NOTHING_KEY} <= table


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_spells_no_key(name: str) -> None:
    body = (LUA / f"{name}.lua").read_text()
    assert keys.PREFIX not in body
    source = connection.script_source(name)
    assert source.startswith("local function job_key")
    assert source.endswith(body)


@pytest.mark.parametrize("path", sorted(LUA.glob("*.lua")), ids=lambda path: path.stem)
def test_a_script_says_what_it_does_and_fits_on_a_screen(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("-- ")
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 120
    header = "\n".join(line for line in lines if line.startswith("-- "))
    if not path.stem.startswith("_"):
        assert "ARGV" in header
        assert "Replies" in header
        assert "-- uses: prelude" in header


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_uses_the_parts_that_it_names(name: str) -> None:
    body = (LUA / f"{name}.lua").read_text()
    used = set((connection._USES.search(body) or ["", ""])[1].split())
    calls = {"finish": "finish(", "requeue": "requeue(", "settle": "settle(", "promote": "promote_due("}
    code = "\n".join(line for line in body.splitlines() if not line.startswith("--"))
    for part, call in calls.items():
        needs = call in code or (part == "finish" and "FINISH_FIELDS" in code)
        assert needs == (part in used) or (part == "finish" and "settle" in used)
