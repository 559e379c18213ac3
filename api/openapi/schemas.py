"""What JSON bodies look like, both ways, as JSON Schema.

It describes what `jobs.view`, `api.routes` and `api.facade` write and what `api.intake` reads; a test holds it to that.
"""

from typing import Any, Final

from jobs.datatypes import Datatype
from jobs.errors import ErrorCode
from jobs.record import Priority
from jobs.spec import InputKind, OutputKind
from jobs.state import State
from jobs.webhook import DeliveryStatus, WebhookEvent

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
TRUTH: Final[Schema] = {"type": "boolean"}
INSTANT: Final[Schema] = {"type": ["string", "null"], "format": "date-time"}
SECONDS: Final[Schema] = {"type": ["number", "null"], "minimum": 0}
SHAPE: Final[Schema] = {"type": "array", "items": {"type": "integer"}}
DATATYPE: Final[Schema] = {"enum": [datatype.value for datatype in Datatype]}


def ref(name: str) -> Schema:
    """A reference to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema) -> Schema:
    """A list of these."""
    return {"type": "array", "items": items}


def record(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    """An object that has at least these members."""
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def or_null(schema: Schema) -> Schema:
    """This, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


_ERROR: Final = record(code={"enum": [code.value for code in ErrorCode]}, title=TEXT, detail=TEXT, retryable=TRUTH)
_OUTPUT: Final = {
    "type": "object",
    "description": "By output: the tensor, or for a classification the best classes",
    "additionalProperties": {
        "anyOf": [record(datatype=DATATYPE, shape=SHAPE, data={"type": "array"}), {"type": "array"}]
    },
    "example": {"probabilities": [{"label": "espresso", "index": 967, "score": 0.95219}]},
}
_JOB: Final[dict[str, Schema]] = {
    "id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "status": {"enum": [state.value for state in State]},
    "done": TRUTH,
    "model": TEXT,
    "model_version": {"type": ["string", "null"]},
    "created_at": INSTANT,
    "run_at": {**INSTANT, "description": "What the option of this name said; null: as soon as possible"},
    "started_at": INSTANT,
    "finished_at": INSTANT,
    "expires_at": INSTANT,
    "attempt": WHOLE,
    "failures": WHOLE,
    "priority": {"enum": [priority.value for priority in Priority]},
    "error": or_null(ref("JobError")),
    "timings": record(
        queue_seconds=SECONDS,
        prepare_seconds=SECONDS,
        batch_wait_seconds=SECONDS,
        inference_seconds=SECONDS,
        total_seconds=SECONDS,
    ),
    "batch": or_null(record(size=WHOLE, id=TEXT)),
    "webhook": or_null(
        record(url=TEXT, status={"enum": [*(status.value for status in DeliveryStatus), None]}, attempts=WHOLE)
    ),
    "metadata": {"type": "object"},
    "urls": {"type": "object", "additionalProperties": TEXT},
}
_TIMES: Final = ("created_at", "run_at", "started_at", "finished_at", "expires_at")
_JOB_NOW: Final[dict[str, Schema]] = {
    "queue": record(
        position={"type": ["integer", "null"]},
        depth={"type": ["integer", "null"]},
        waiting_for={
            "enum": ["backlog", "schedule", "no_worker", "engine", "backoff", None],
            "description": "What a queued job needs first: `backlog`: those before it in the queue; `schedule`: its "
            "`run_at`; `no_worker`: a live worker that serves its model; `engine`: that the engine answers for it; "
            "`backoff`: the time of its next attempt. null when it is not queued",
        },
    ),
    "output": or_null(ref("Output")),
    "output_omitted": TRUTH,
}
_TENSOR_IN: Final[Schema] = {
    **record(
        {"parameters": {"type": ["object", "null"]}}, name=TEXT, datatype=DATATYPE, shape={**SHAPE, "maxItems": 64}
    ),
    "example": {"name": "input", "datatype": "FP32", "shape": [2], "data": [1.5, 2.0]},
}
_TENSOR_IN["properties"]["data"] = {"type": "array", "description": "Flat in row-major order, or nested as the shape"}
_WANTED: Final = record({"parameters": {"type": ["object", "null"]}}, name=TEXT)
_OPTIONS: Final[dict[str, Schema]] = {
    "model": TEXT,
    "model_version": TEXT,
    "priority": {"enum": [priority.value for priority in Priority]},
    "queue_ttl_seconds": {"type": "number", "minimum": 0.001, "maximum": 2592000, "default": 3600},
    "timeout_seconds": {"type": "number", "minimum": 0.001, "maximum": 86400, "default": 60},
    "max_failures": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3},
    "run_at": {
        "anyOf": [{"type": "string", "format": "date-time"}, {"type": "number", "minimum": 0}],
        "description": "Not before this instant; RFC 3339, or Unix seconds",
    },
    "result_ttl_seconds": {"type": "number", "minimum": 0.001, "maximum": 2592000, "default": 86400},
    "metadata": {"type": "object", "description": "Comes back as it is; at most 4 KiB"},
    "webhook": {"type": "string", "format": "uri", "description": "Where the job's messages go"},
    "webhook_events": array({"enum": [event.value for event in WebhookEvent]}),
    "webhook_secret": {**array(TEXT), "description": "whsec_… to sign them with, in place of the server's; at most 2"},
    "webhook_include_output": {
        "type": "boolean",
        "default": False,
        "description": "An output up to 16 KiB comes along",
    },
}
_FORM: Final[dict[str, Schema]] = {
    "versions": array(TEXT),
    "ready": TRUTH,
    "refusal": {"type": ["string", "null"]},
    "max_batch_size": WHOLE,
    "inputs": array(
        record(
            name=TEXT,
            datatype=DATATYPE,
            shape=SHAPE,
            optional=TRUTH,
            kind={"enum": [kind.value for kind in InputKind]},
        )
    ),
    "outputs": array(
        record(
            name=TEXT,
            datatype=DATATYPE,
            shape=SHAPE,
            kind={"enum": [kind.value for kind in OutputKind]},
            top={"type": ["integer", "null"]},
        )
    ),
    "notes": array(TEXT),
}
OPTIONS: Final = _OPTIONS
"""Every option of a job, under the one name that it has in every form of request."""

SCHEMAS: Final[dict[str, Schema]] = {
    "Job": record(**_JOB, **_JOB_NOW),
    "JobSummary": record(**_JOB),
    "JobReceipt": {
        **record(**{name: _JOB[name] for name in ("id", "status", "done", *_TIMES, "urls")}),
        "description": "A job for a key without the scope `read`",
    },
    "JobError": _ERROR,
    "Output": _OUTPUT,
    "JobPage": record(
        jobs=array(ref("JobSummary")),
        next_cursor={
            "type": ["string", "null"],
            "description": "Follow it until it is null: with a filter a page may be short, or empty, and not the last",
        },
    ),
    "Batch": record(
        accepted=WHOLE,
        refused=WHOLE,
        jobs=array(
            {
                "oneOf": [
                    record(status=WHOLE, replayed=TRUTH, job=ref("Job")),
                    record(status=WHOLE, problem=record(code=TEXT, detail=TEXT, status=WHOLE, title=TEXT, type=TEXT)),
                ]
            }
        ),
    ),
    "Delivery": record(
        id=TEXT,
        type={"enum": [event.value for event in WebhookEvent]},
        url={"type": ["string", "null"]},
        status={"enum": [status.value for status in DeliveryStatus]},
        attempts=WHOLE,
        created_at=INSTANT,
        next_attempt_at=INSTANT,
        log=array(
            record(
                at=INSTANT,
                status={"type": ["integer", "null"]},
                duration_seconds=SECONDS,
                error={"type": ["string", "null"]},
            )
        ),
    ),
    "Deliveries": record(deliveries=array(ref("Delivery"))),
    "Redelivered": record({"deliveries": array(ref("Delivery"))}, redelivered=WHOLE, next_since=INSTANT),
    "JobRequest": {
        "type": "object",
        "required": ["model", "inputs"],
        "additionalProperties": False,
        "description": "A member that is null is one that is not given",
        "properties": {
            **{name: schema if name == "model" else or_null(schema) for name, schema in _OPTIONS.items()},
            "id": {"type": ["string", "null"], "maxLength": 255},
            "inputs": {**array(ref("InputTensor")), "maxItems": 256},
            "outputs": or_null(array({"anyOf": [TEXT, ref("WantedOutput")]})),
            "parameters": or_null(
                {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
            ),
        },
        "example": {
            "model": "identity",
            "inputs": [{"name": "input", "datatype": "FP32", "shape": [2], "data": [1.5, 2.0]}],
            "priority": "high",
        },
    },
    "InputTensor": _TENSOR_IN,
    "WantedOutput": _WANTED,
    "Model": record(
        name=TEXT,
        **_FORM,
        variants={**array(record(**_FORM)), "description": "The versions that differ from the newest one"},
        platform=TEXT,
        instances=WHOLE,
        queued=WHOLE,
        in_progress=WHOLE,
        workers=WHOLE,
        lanes={"type": "object"},
        urls={"type": "object", "additionalProperties": TEXT},
    ),
    "Models": record(models=array(ref("Model"))),
    "Product": record(name=TEXT, version=TEXT),
    "Live": record(status={"const": "live"}),
    "Ready": record(
        status={"enum": ["ready", "not_ready"]},
        reasons=array(TEXT),
        models=WHOLE,
        workers=WHOLE,
        webhook_workers=WHOLE,
    ),
    "InferRequest": {
        **record(
            {
                "id": {"type": ["string", "null"], "maxLength": 255},
                "outputs": or_null(array(ref("WantedOutput"))),
                "parameters": {"type": ["object", "null"]},
            },
            inputs={**array(ref("InputTensor")), "maxItems": 256},
        ),
        "example": {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.0]}]},
    },
    "InferAnswer": record(
        {"id": TEXT},
        model_name=TEXT,
        model_version=TEXT,
        outputs=array(record({"data": {"type": "array"}, "parameters": {"type": "object"}}, name=TEXT, shape=SHAPE)),
    ),
    "ServerMetadata": record(name=TEXT, version=TEXT, extensions=array(TEXT)),
    "ModelMetadata": record(
        name=TEXT,
        versions=array(TEXT),
        platform=TEXT,
        inputs=array(record(name=TEXT, datatype=DATATYPE, shape=SHAPE)),
        outputs=array(record(name=TEXT, datatype=DATATYPE, shape=SHAPE)),
    ),
    "ModelConfig": record(name=TEXT, max_batch_size={"type": "integer"}, input={"type": "array"}),
    "Statistics": record(model_stats=array(record(name=TEXT, version=TEXT))),
    "Index": array(record({"reason": TEXT}, name=TEXT, version=TEXT, state={"enum": ["READY", "UNAVAILABLE"]})),
    "IndexRequest": {"type": "object", "properties": {"ready": TRUTH}},
}
