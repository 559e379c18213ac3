"""Pure: what the engine says of a model, its metadata and configuration, as the product's ModelSpec.

It never raises: a model that can't be served, or whose `inferq` parameter is wrong, gets a spec with a refusal.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from jobs.datatypes import Datatype
from jobs.spec import InputSpec, ModelSpec, OutputSpec
from workers.triton import kinds, parameter
from workers.triton.parameter import Parameter, ParameterError
from workers.triton.pb import inference_pb2 as pb
from workers.triton.plain import plain

_DATATYPES: Final[Mapping[int, Datatype]] = MappingProxyType(
    {
        pb.TYPE_BOOL: Datatype.BOOL,
        pb.TYPE_UINT8: Datatype.UINT8,
        pb.TYPE_UINT16: Datatype.UINT16,
        pb.TYPE_UINT32: Datatype.UINT32,
        pb.TYPE_UINT64: Datatype.UINT64,
        pb.TYPE_INT8: Datatype.INT8,
        pb.TYPE_INT16: Datatype.INT16,
        pb.TYPE_INT32: Datatype.INT32,
        pb.TYPE_INT64: Datatype.INT64,
        pb.TYPE_FP16: Datatype.FP16,
        pb.TYPE_FP32: Datatype.FP32,
        pb.TYPE_FP64: Datatype.FP64,
        pb.TYPE_STRING: Datatype.BYTES,
        pb.TYPE_BF16: Datatype.BF16,
    }
)

_NO_CONFIGS: Final[Mapping[str, pb.ModelConfig]] = MappingProxyType({})
_STATEFUL: Final = "The model keeps state between the requests of a sequence, and queued jobs may run in any order."
_DECOUPLED: Final = "The model answers by stream, with any number of responses to a request (decoupled)."


class _UnknownDatatype(ValueError):
    """A tensor has a datatype that the protocol, as it is known here, doesn't have."""


def model_spec(
    metadata: pb.ModelMetadataResponse, config: pb.ModelConfig, older: Mapping[str, pb.ModelConfig] = _NO_CONFIGS
) -> ModelSpec:
    """The spec of a model; `refusal` says why no job can be accepted for it as it is configured.

    Tensors come from the configuration, because its dims are a client's view of one item whatever `reshape` does
    inside; versions and platform come from the metadata. A wrong parameter leaves all tensors plain. `older` has the
    configurations of the versions before the newest: where a backend completes them itself, they may differ.
    """
    newest = _spec(metadata, config)
    versions_of: dict[ModelSpec, tuple[str, ...]] = {}
    for version, its_config in older.items():
        spec = _spec(metadata, its_config)
        versions_of[spec] = (*versions_of.get(spec, ()), version)
    variants = (replace(spec, versions=those) for spec, those in versions_of.items() if spec != newest)
    return replace(newest, variants=tuple(variants))


def versions(metadata: pb.ModelMetadataResponse) -> tuple[str, ...]:
    """The model's versions, the newest last."""
    return tuple(sorted(metadata.versions, key=lambda version: (len(version), version)))


def _spec(metadata: pb.ModelMetadataResponse, config: pb.ModelConfig) -> ModelSpec:
    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[OutputSpec, ...] = ()
    refusal = None
    has_fixed_batch = False
    try:
        inputs, outputs = _inputs(config), _outputs(config)
        if parameter.KEY in config.parameters:
            wanted = parameter.parse(config.parameters[parameter.KEY].string_value)
            inputs, outputs = _with_kinds(wanted, config, inputs, outputs)
            has_fixed_batch = _has_fixed_batch(wanted, config)
    except _UnknownDatatype as exc:
        refusal = f"{exc}."
    except ParameterError as exc:
        refusal = " ".join(f"The model's '{parameter.KEY}' parameter is wrong: {exc}.".split())
    if config.HasField("sequence_batching"):
        refusal = _STATEFUL
    is_decoupled = config.model_transaction_policy.decoupled
    return ModelSpec(
        name=metadata.name or config.name,
        versions=versions(metadata),
        max_batch_size=max(config.max_batch_size, 0),
        inputs=inputs,
        outputs=outputs,
        instances=_instances(config),
        platform=metadata.platform or config.platform or config.backend,
        decoupled=is_decoupled,
        refusal=refusal,
        notes=(_DECOUPLED,) if is_decoupled else (),
        has_fixed_batch=has_fixed_batch,
        config=json.dumps(plain(config), separators=(",", ":"), ensure_ascii=False),
    )


def _inputs(config: pb.ModelConfig) -> tuple[InputSpec, ...]:
    return tuple(
        InputSpec(each.name, _datatype(each.data_type, f"Input '{each.name}'"), tuple(each.dims), each.optional)
        for each in config.input
    )


def _outputs(config: pb.ModelConfig) -> tuple[OutputSpec, ...]:
    return tuple(
        OutputSpec(each.name, _datatype(each.data_type, f"Output '{each.name}'"), tuple(each.dims))
        for each in config.output
    )


def _datatype(number: int, what: str) -> Datatype:
    if number not in _DATATYPES:
        raise _UnknownDatatype(f"{what} has a datatype that is not known here")
    return _DATATYPES[number]


def _instances(config: pb.ModelConfig) -> int:
    """Copies of the model that run at the same time; an ensemble, which has none of its own, counts as one."""
    groups = (group for group in config.instance_group if not group.passive)
    return max(sum(group.count * max(len(group.gpus), 1) for group in groups), 1)


def _has_fixed_batch(wanted: Parameter, config: pb.ModelConfig) -> bool:
    if wanted.batch and (config.max_batch_size < 1 or config.model_transaction_policy.decoupled):
        raise ParameterError("batch: a full batch needs a max_batch_size above 0, and one response to a request")
    return wanted.batch is not None


def _with_kinds(
    wanted: Parameter, config: pb.ModelConfig, inputs: tuple[InputSpec, ...], outputs: tuple[OutputSpec, ...]
) -> tuple[tuple[InputSpec, ...], tuple[OutputSpec, ...]]:
    _refuse_strangers("inputs", wanted.inputs, [spec.name for spec in inputs])
    _refuse_strangers("outputs", wanted.outputs, [spec.name for spec in outputs])
    formats = {each.name: each.format for each in config.input}
    return (
        tuple(
            kinds.input_spec(spec, wanted.inputs[spec.name], formats[spec.name]) if spec.name in wanted.inputs else spec
            for spec in inputs
        ),
        tuple(
            kinds.output_spec(spec, wanted.outputs[spec.name]) if spec.name in wanted.outputs else spec
            for spec in outputs
        ),
    )


def _refuse_strangers(section: str, named: Iterable[str], known: list[str]) -> None:
    strangers = [name for name in named if name not in known]
    if strangers:
        raise ParameterError(f"{section}.{strangers[0]}: the model has no such tensor, only {', '.join(known)}")
