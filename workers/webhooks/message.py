"""What a message says: its type, its instant, and the job as `GET /jobs/{id}` shows it.

It owns the body of messages. It must not sign or send them.
"""

from typing import Final

import orjson

from jobs.deliveries import Delivery
from jobs.outputs import inline_output
from jobs.record import Job
from jobs.store import Inspection, JobStore
from jobs.view import job_object, timestamp

MOST_OUTPUT_BYTES: Final = 16 * 1024
"""Of JSON; a larger output is left out, and read from `/jobs/{id}/result`."""


async def message_body(store: JobStore, delivery: Delivery, job: Job, now_ms: int) -> bytes:
    """The body of a delivery at this instant, as JSON; raises StoreError.

    `timestamp` is when the event happened, and `data` the job as it is now.
    """
    found = Inspection(job, rank=-1, depth=0, now_ms=now_ms)
    output, is_omitted = None, False
    if job.request.webhook is not None and job.request.webhook.include_output:
        output, is_omitted = await inline_output(store, found, MOST_OUTPUT_BYTES)
    elif job.outcome is not None and job.outcome.outputs:
        is_omitted = True
    return orjson.dumps(
        {
            "type": delivery.event.value,
            "timestamp": timestamp(delivery.created_ms),
            "data": job_object(found, (), output, is_omitted=is_omitted),
        }
    )
