"""Real Valkey and Triton as parts of the stack: ready means ready, data and ports survive a restart."""

from __future__ import annotations

import shutil
import socket
import stat
from pathlib import Path

import pytest

from inferq.stack import StackEnvironment, StackError, TritonServer, ValkeyServer
from inferq.stack.triton import MODELS, SHARED_MEMORY
from tests.support.engine_http import EngineHttp, Raw
from tests.support.processes import command_line, group_members, session_id
from tests.support.servers import StartEngine, StartValkey


def command(server: ValkeyServer, *lines: str) -> bytes:
    """Replies of a Valkey to inline commands, the closing one's included."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in (*lines, "QUIT")).encode())
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.server
def test_what_valkey_acknowledged_survives_its_restart_on_the_same_port(start_valkey: StartValkey) -> None:
    valkey = start_valkey()
    url = valkey.url
    assert command(valkey, "SET job 1") == b"+OK\r\n+OK\r\n"
    valkey.stop()
    assert not valkey.is_ready()
    valkey.start()
    assert valkey.url == url
    assert b"\r\n1\r\n" in command(valkey, "GET job")


@pytest.mark.server
def test_valkey_never_evicts_and_appends_to_its_file_every_second(start_valkey: StartValkey) -> None:
    valkey = start_valkey()
    for name, value in (("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("appendfsync", "everysec")):
        assert f"\r\n{value}\r\n".encode() in command(valkey, f"CONFIG GET {name}")


@pytest.mark.server
def test_a_password_is_asked_for_and_kept_from_other_users(start_valkey: StartValkey) -> None:
    """T: Redis: reachable without authentication."""
    valkey = start_valkey(password="sesame")
    assert command(valkey, "GET job").startswith(b"-NOAUTH")
    assert command(valkey, "AUTH sesame", "PING").startswith(b"+OK\r\n+PONG")
    assert ":sesame@" in valkey.url
    assert stat.S_IMODE(valkey.config_path.stat().st_mode) == 0o600
    assert "sesame" not in command_line(valkey.process.pid)


@pytest.mark.server
def test_a_server_that_cannot_start_shows_the_end_of_its_log(
    stack_environment: StackEnvironment, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        valkey = ValkeyServer(stack_environment, tmp_path, port=taken.getsockname()[1])
        with pytest.raises(StackError, match="valkey ended with status 1 before it was ready") as failed:
            valkey.start()
    assert "Address already in use" in str(failed.value)


@pytest.mark.engine
def test_triton_comes_back_on_the_same_ports_and_leaves_no_shared_memory(start_engine: StartEngine) -> None:
    engine = start_engine()
    ports = (engine.grpc_port, engine.http_port, engine.metrics_port)
    assert list(SHARED_MEMORY.glob(f"{engine.shared_memory_prefix}*"))
    engine.stop()
    assert not engine.is_ready()
    assert not list(SHARED_MEMORY.glob(f"{engine.shared_memory_prefix}*"))
    engine.start()
    assert (engine.grpc_port, engine.http_port, engine.metrics_port) == ports
    assert engine.is_ready()


@pytest.mark.engine
def test_a_killed_triton_takes_its_stubs_along_and_its_successor_frees_their_memory(start_engine: StartEngine) -> None:
    engine = start_engine()
    group = engine.process.pid
    engine.process.kill()
    leftover = set(SHARED_MEMORY.glob(f"{engine.shared_memory_prefix}*"))
    assert leftover
    assert not group_members(group)
    engine.start()
    assert not leftover & set(SHARED_MEMORY.glob(f"{engine.shared_memory_prefix}*"))


@pytest.mark.engine
@pytest.mark.anyio
async def test_two_tritons_run_side_by_side(engine: TritonServer, start_engine: StartEngine) -> None:
    sent = Raw("FP32", (1, 2), b"\0\0\x80\x3f\0\0\0\x40")
    for server in (engine, start_engine()):
        async with EngineHttp(server.http_address) as triton:
            assert (await triton.infer("identity", {"input": sent}))["output"] == sent


@pytest.mark.server
def test_what_valkey_stores_is_for_its_owner_alone(start_valkey: StartValkey, tmp_path: Path) -> None:
    """T: Config: payloads and the secrets of messages lie there; also in a folder from before, open to all."""
    folder = tmp_path / "valkey"
    folder.mkdir(mode=0o755)
    valkey = start_valkey(data_dir=folder)
    assert command(valkey, "SET job 1") == b"+OK\r\n+OK\r\n"
    valkey.stop()
    stored = [path for path in folder.rglob("*") if path.suffix not in (".log", "")]
    assert any(path.suffix == ".aof" for path in stored)
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE((folder / "appendonlydir").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in stored} == {0o600}


@pytest.mark.engine
def test_a_model_that_cannot_load_ends_the_start_with_the_reason(start_engine: StartEngine, tmp_path: Path) -> None:
    (tmp_path / "models" / "broken" / "1").mkdir(parents=True)
    (tmp_path / "models" / "broken" / "config.pbtxt").write_text('backend: "no_such_backend"\n')
    with pytest.raises(StackError, match="triton ended with status 1 before it was ready") as failed:
        start_engine([tmp_path / "models"])
    assert "no_such_backend" in str(failed.value)


@pytest.mark.engine
def test_a_flag_that_triton_does_not_know_is_named_and_not_all_those_that_it_knows(start_engine: StartEngine) -> None:
    with pytest.raises(StackError) as failed:
        start_engine([MODELS], extra_flags=("--http-thread-cont=8",))
    assert failed.value.log_lines == ("tritonserver: unrecognized option '--http-thread-cont=8'",)


@pytest.mark.engine
def test_a_symbolic_link_leads_to_models_where_triton_could_not_load_them(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    shutil.copytree(MODELS / "identity", tmp_path / "mes modèles" / "identity")
    (tmp_path / "models").symlink_to("mes modèles")
    start_engine([tmp_path / "models"])


def test_signals_of_the_terminal_do_not_reach_the_servers(stack_environment: StackEnvironment, tmp_path: Path) -> None:
    valkey = ValkeyServer(stack_environment, tmp_path)
    valkey.start()
    session = session_id(valkey.process.pid)
    valkey.stop()
    assert session == valkey.process.pid
