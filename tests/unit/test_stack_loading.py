"""What Triton 2.51 writes while it starts, and what is made of it."""

from __future__ import annotations

from inferq.stack.loading import Progress, progress_of, unread_models

HEAD = 'E1130 14:27:16.141892 26403 server.cc:241] "CudaDriverHelper has not been initialized."'
STARTED = 'I1130 14:27:08.653378 26090 grpc_server.cc:2558] "Started GRPCInferenceService at 127.0.0.1:19343"'
MISSING = "Python model file not found in '/models/empty/1/model.py'"
NO_MODEL_FILE = f"I1130 14:26:11.833267 23753 pb_stub.cc:2105]  Failed to preinitialize Python stub: {MISSING}"
BROKEN = "\"failed to load 'broken' version 1: Internal: SyntaxError: '(' was never closed (model.py, line 1)\""
FAILED = f"E1130 14:26:35.356396 24940 model_lifecycle.cc:642] {BROKEN}"
FAILED_TOO = "I1130 14:26:35.356428 24940 model_lifecycle.cc:777] \"failed to load 'broken'\""
PARSING = "Error parsing text-format inference.ModelConfig: "
LITERAL = "4:6: String literals cannot cross line boundaries."
UNREADABLE = "\"Poll failed for model directory 'effn': failed to read text proto from /models/effn/config.pbtxt\""
POLL = [
    f"[libprotobuf ERROR /build/protobuf/text_format.cc:337] {PARSING}{LITERAL}",
    f"[libprotobuf ERROR /build/protobuf/text_format.cc:337] {PARSING}5:3: Expected identifier.",
    f"E1130 15:34:12.176785 23789 model_repository_manager.cc:1460] {UNREADABLE}",
]
ABSENT = (
    "E1130 15:34:40.832552 24618 model_repository_manager.cc:1415] "
    "\"failed to poll model 'nowhere': model not found in any model repository.\""
)


def loading(model: str) -> str:
    return f'I1130 14:26:45.493035 25491 model_lifecycle.cc:472] "loading: {model}:1"'


def loaded(model: str) -> str:
    return f"I1130 14:26:46.801950 25491 model_lifecycle.cc:839] \"successfully loaded '{model}'\""


def test_the_models_are_named_that_are_still_loading() -> None:
    assert progress_of([]).doing == "starting"
    assert progress_of([HEAD, loading("a"), loading("b"), loaded("a")]) == Progress("loading model b")
    many = [loading(f"m{number}") for number in range(7)]
    assert progress_of(many).doing == "loading models m0, m1, m2, m3, m4 and 2 more"


def test_a_model_that_triton_waits_for_in_vain_is_a_fault_and_so_is_one_that_will_end_it() -> None:
    assert progress_of([HEAD, loading("empty"), NO_MODEL_FILE]).faults == (MISSING,)
    assert progress_of([loading("large"), loading("broken"), FAILED, FAILED_TOO]) == Progress(
        "loading model large", (BROKEN,)
    )


def test_where_triton_may_start_without_a_model_only_waiting_in_vain_is_a_fault() -> None:
    log = [loading("empty"), NO_MODEL_FILE, loading("broken"), FAILED, FAILED_TOO]
    assert progress_of(log, may_fail=True) == Progress("loading model empty", (MISSING,))


def test_nothing_that_it_says_after_its_start_is_about_the_start() -> None:
    assert progress_of([loading("a"), loaded("a"), STARTED, loading("empty"), NO_MODEL_FILE, FAILED]) == Progress()


def test_the_place_in_a_configuration_that_can_not_be_read_stands_before_the_models_name() -> None:
    assert progress_of([*POLL, loading("good")]) == Progress(
        "loading model good", (f"{PARSING}{LITERAL}", f"{PARSING}5:3: Expected identifier.", UNREADABLE)
    )


def test_a_model_that_it_starts_without_and_forgets_is_known_with_the_first_place() -> None:
    log = [HEAD, *POLL, ABSENT, loading("good"), loaded("good"), STARTED, ABSENT.replace("nowhere", "later")]
    assert unread_models(log) == {
        "effn": f"failed to read text proto from /models/effn/config.pbtxt: {LITERAL}",
        "nowhere": "model not found in any model repository.",
    }
