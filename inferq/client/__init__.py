"""A Python client for inferq: submit, wait, fetch; blocking (`Client`) or awaited (`AsyncClient`).

It speaks HTTP only and shares no code with the service.
"""

from inferq.client.clients import DEFAULT_URL, AsyncClient, Client
from inferq.client.errors import (
    InferqError,
    JobFailed,
    JobNotDone,
    NotFound,
    ProblemError,
    RequestRefused,
    ResultExpired,
    ServerFailed,
    ServerUnavailable,
    ServerUnreachable,
    WaitTimeout,
)
from inferq.client.job import Job, JobError
from inferq.client.requests import Options
from inferq.client.webhooks import InvalidWebhook, verify_webhook

__all__ = [
    "DEFAULT_URL",
    "AsyncClient",
    "Client",
    "InferqError",
    "InvalidWebhook",
    "Job",
    "JobError",
    "JobFailed",
    "JobNotDone",
    "NotFound",
    "Options",
    "ProblemError",
    "RequestRefused",
    "ResultExpired",
    "ServerFailed",
    "ServerUnavailable",
    "ServerUnreachable",
    "WaitTimeout",
    "verify_webhook",
]
