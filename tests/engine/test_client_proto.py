"""Our declaration of the wire contract is NVIDIA's: every field's name, number, type and label, and every call."""

import json
import subprocess
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from inferq.stack import StackEnvironment
from workers.triton.pb import inference_pb2 as pb

pytestmark = pytest.mark.engine

# tritonclient registers the same names as our stubs in protobuf's process-wide pool, so it is asked in a process of
# its own. Fields are told by number, because numbers are what travels.
PROBE = """
import json
from tritonclient.grpc import model_config_pb2, service_pb2

def fields(message):
    return {
        field.number: [field.name, field.type, field.is_repeated, field.has_presence,
                       getattr(field.message_type or field.enum_type, "full_name", None),
                       getattr(field.containing_oneof, "name", None)]
        for field in message.fields
    }

def walk(message, found):
    found["messages"][message.full_name] = fields(message)
    for inner in message.nested_types:
        walk(inner, found)
    for enum in message.enum_types:
        found["enums"][enum.full_name] = {value.name: value.number for value in enum.values}

found = {"messages": {}, "enums": {}, "calls": {}}
for file in (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR):
    for message in file.message_types_by_name.values():
        walk(message, found)
    for enum in file.enum_types_by_name.values():
        found["enums"][enum.full_name] = {value.name: value.number for value in enum.values}
    for service in file.services_by_name.values():
        for call in service.methods:
            found["calls"][call.full_name] = [call.input_type.full_name, call.output_type.full_name,
                                              call.client_streaming, call.server_streaming]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def theirs(stack_environment: StackEnvironment) -> Any:
    """NVIDIA's descriptors as plain data."""
    python = stack_environment.folder / "bin" / "python3"
    command = [str(python), "-W", "ignore", "-c", PROBE]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def messages() -> dict[str, Descriptor]:
    """All messages that we declare, with those inside others, by full name."""
    found: dict[str, Descriptor] = {}
    waiting = list(pb.DESCRIPTOR.message_types_by_name.values())
    while waiting:
        message = waiting.pop()
        found[message.full_name] = message
        waiting.extend(message.nested_types)
    return found


def enums() -> dict[str, EnumDescriptor]:
    """All enums that we declare, by full name."""
    inner = [enum for message in messages().values() for enum in message.enum_types]
    return {enum.full_name: enum for enum in [*inner, *pb.DESCRIPTOR.enum_types_by_name.values()]}


def facts(field: FieldDescriptor) -> list[Any]:
    """What must agree about one field."""
    kind = field.message_type or field.enum_type
    oneof = field.containing_oneof
    return [
        field.name,
        field.type,
        field.is_repeated,
        field.has_presence,
        kind.full_name if kind else None,
        oneof.name if oneof else None,
    ]


@pytest.mark.parametrize("name", sorted(messages()))
def test_every_field_that_we_declare_is_the_engines(theirs: Any, name: str) -> None:
    expected = theirs["messages"][name]
    for field in messages()[name].fields:
        assert facts(field) == expected[str(field.number)]


@pytest.mark.parametrize("name", sorted(enums()))
def test_every_value_that_we_declare_is_the_engines(theirs: Any, name: str) -> None:
    assert {value.name: value.number for value in enums()[name].values}.items() <= theirs["enums"][name].items()


def test_every_call_that_we_declare_is_the_engines(theirs: Any) -> None:
    service = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    ours = {
        call.full_name: [
            call.input_type.full_name,
            call.output_type.full_name,
            call.client_streaming,
            call.server_streaming,
        ]
        for call in service.methods
    }
    assert len(ours) == 12
    assert ours.items() <= theirs["calls"].items()
