"""Webhooks over HTTP: what a submission may ask for, what a job shows, the log, and having messages sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from jobs import keys
from jobs.connection import Call
from jobs.deliveries import Attempt, Deliveries, Record
from jobs.destination import AllowList, parse
from jobs.record import LOCAL_TENANT
from jobs.settings import SettingsError, WebhookSettings, load
from jobs.webhook import DeliveryStatus, WebhookEvent, derived_secret, secret_key, tenant_secrets
from tests.api.harness import Api, Backend, floats, identity_spec, running_api
from tests.support.webhooks import SECRET, URL, message

pytestmark = pytest.mark.anyio

OWN = "whsec_" + "b3duLW93bi1vd24tb3duLW93bi1vd24t"
REFUSED = Attempt(1_700_000_000_000, 1500, 500, "status")


@pytest.fixture
async def api(store_url: str) -> AsyncIterator[Api]:
    """An application that has a secret, and no worker."""
    async with running_api(
        Backend(store_url),
        models=[identity_spec()],
        webhook_secret=SecretStr(SECRET),
        webhook_allow=("127.0.0.0/8", "hooks.internal"),
    ) as opened:
        await opened.store.connection.client.flushdb()
        yield opened


async def refusal(api: Api, **options: Any) -> dict[str, Any]:
    """The problem with these options."""
    response = await api.post(**options)
    assert response.status_code == 422, response.text
    problem: dict[str, Any] = response.json()
    assert problem["code"] == "invalid_option"
    return problem


async def failed(api: Api, **options: Any) -> tuple[str, Deliveries]:
    """The id of a job that succeeded and whose message was given up."""
    job_id = await api.submit(webhook=URL, **options)
    await api.hand.succeed(await api.hand.take(), floats(1.0))
    deliveries = Deliveries(api.store.connection)
    await settle(deliveries, job_id, DeliveryStatus.FAILED)
    return job_id, deliveries


async def settle(deliveries: Deliveries, job_id: str, status: DeliveryStatus) -> None:
    (delivery,) = await deliveries.of_job(job_id)
    assert await deliveries.record([Record(delivery, REFUSED, status)]) == [True]


async def test_a_job_shows_where_its_messages_go_and_never_their_secret(api: Api) -> None:
    job_id = await api.submit(webhook="HTTPS://Receiver.EXAMPLE/hook#x", webhook_secret=OWN)
    shown = await api.get(f"/jobs/{job_id}")
    assert shown.json()["webhook"] == {"url": "https://receiver.example/hook", "status": None, "attempts": 0}
    assert shown.json()["urls"]["deliveries"] == f"/jobs/{job_id}/deliveries"
    listed = (await api.get("/jobs")).text
    deliveries = (await api.get(f"/jobs/{job_id}/deliveries")).text
    assert not [text for text in (shown.text, listed, deliveries) if OWN[6:] in text]
    webhook = (await api.record(job_id)).request.webhook
    assert webhook is not None
    assert (webhook.secrets, OWN in repr(webhook)) == ((OWN,), False)


async def test_a_job_without_a_webhook_shows_none(api: Api) -> None:
    job_id = await api.submit()
    shown = await api.job(job_id)
    assert shown["webhook"] is None
    assert "deliveries" not in shown["urls"]
    assert (await api.get(f"/jobs/{job_id}/deliveries")).json() == {"deliveries": []}
    response = await api.client.post(f"/jobs/{job_id}/deliveries/redeliver")
    assert (response.status_code, response.json()["code"]) == (409, "no_deliveries")


@pytest.mark.parametrize(
    ("events", "stored"),
    [
        (["job.failed"], [WebhookEvent.FAILED]),
        (["job.failed", "job.started", "job.failed"], [WebhookEvent.STARTED, WebhookEvent.FAILED]),
        ("job.expired, job.canceled", [WebhookEvent.CANCELED, WebhookEvent.EXPIRED]),
        ('["job.succeeded"]', [WebhookEvent.SUCCEEDED]),
        (None, [event for event in WebhookEvent if event is not WebhookEvent.STARTED]),
    ],
)
async def test_events_are_chosen_by_name(api: Api, events: Any, stored: list[WebhookEvent]) -> None:
    job_id = await api.submit(webhook=URL, webhook_events=events)
    webhook = (await api.record(job_id)).request.webhook
    assert webhook is not None
    assert list(webhook.events) == stored


async def test_every_form_of_request_takes_the_same_options(api: Api) -> None:
    options = {"webhook": URL, "webhook_events": "job.failed", "webhook_include_output": "true"}
    tensor = b"\x00\x00\x80\x3f"
    by_query = await api.client.post(
        "/jobs",
        params={"model": "identity", **options},
        files={"x": ("x.json", b"[1.0]", "application/json")},
    )
    by_form = await api.client.post(
        "/jobs", data={"model": "identity", **options}, files={"x": ("x.json", b"[1.0]", "application/json")}
    )
    assert (by_query.status_code, by_form.status_code) == (202, 202), (by_query.text, by_form.text, tensor)
    documented = await api.submit(webhook=URL, webhook_events=["job.failed"], webhook_include_output=True)
    ids = [by_query.json()["id"], by_form.json()["id"], documented]
    webhooks = {repr((await api.record(job_id)).request.webhook) for job_id in ids}
    assert len(webhooks) == 1
    batch = await api.client.post(
        "/jobs/batch",
        params={"webhook": URL},
        json=[{"model": "identity", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]}],
    )
    assert batch.json()["jobs"][0]["job"]["webhook"]["url"] == URL


@pytest.mark.parametrize(
    "url",
    [
        "http://receiver.example/",
        "https://127.0.0.2.evil/\r\nX: y",
        "https://10.0.0.1/",
        "https://2130706433/",
        "https://[::ffff:7f00:1]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://user:password@receiver.example/",
        "https://receiver.example:8080/",
        "file:///etc/passwd",
        "",
        7,
        {"url": "https://receiver.example/"},
    ],
)
async def test_a_bad_url_is_refused_before_there_is_a_job(api: Api, url: Any) -> None:
    """T: Webhook URL."""
    problem = await refusal(api, webhook=url)
    assert problem["option"] == "webhook"
    assert (await api.get("/jobs")).json()["jobs"] == []


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://receiver.example/", "receiver.example:80"),
        ("https://10.0.0.1/", "10.0.0.1:443"),
        ("https://[::1]:9000/", "[::1]:9000"),
        ("https://receiver.example:8080/", "receiver.example:8080"),
    ],
)
async def test_a_url_that_an_operator_can_allow_is_refused_with_what_to_allow(api: Api, url: str, entry: str) -> None:
    """T: Webhook URL."""
    detail = (await refusal(api, webhook=url))["detail"]
    assert f"with `{entry}` in INFERQ_WEBHOOK_ALLOW" in detail
    allowed = AllowList.parse([entry])
    assert parse(url, allowed).host in entry


@pytest.mark.parametrize(
    "url", ["https://169.254.169.254/", "https://[fe80::1]/", "https://2130706433/", "https://a:b@receiver.example/"]
)
async def test_nobody_is_advised_to_allow_a_metadata_service_or_what_is_no_url(api: Api, url: str) -> None:
    """T: Webhook URL."""
    assert "INFERQ_WEBHOOK_ALLOW" not in (await refusal(api, webhook=url))["detail"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/x", "http://hooks.internal/", "https://hooks.internal:81/"])
async def test_what_the_operator_allows_is_taken(api: Api, url: str) -> None:
    assert (await api.job(await api.submit(webhook=url)))["webhook"]["url"] == url


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"webhook_events": ["job.done"]}, "webhook_events"),
        ({"webhook_events": []}, "webhook_events"),
        ({"webhook_events": "["}, "webhook_events"),
        ({"webhook_events": [1]}, "webhook_events"),
        ({"webhook_events": {"job.failed": True}}, "webhook_events"),
        ({"webhook_secret": "secret"}, "webhook_secret"),
        ({"webhook_secret": "whsec_YWJj"}, "webhook_secret"),
        ({"webhook_secret": "whsec_!!!"}, "webhook_secret"),
        ({"webhook_secret": ""}, "webhook_secret"),
        ({"webhook_secret": 5}, "webhook_secret"),
        ({"webhook_secret": [OWN, SECRET, OWN]}, "webhook_secret"),
        ({"webhook_secret": f"whsec_{'A' * 88}"}, "webhook_secret"),
        ({"webhook_include_output": "perhaps"}, "webhook_include_output"),
        ({"webhook_include_output": 1}, "webhook_include_output"),
    ],
)
async def test_a_bad_option_is_refused_by_its_name_and_without_the_secret(
    api: Api, options: dict[str, Any], option: str
) -> None:
    """T: Webhook secret: 24 bytes at least."""
    problem = await refusal(api, webhook=URL, **options)
    assert problem["option"] == option
    assert "YWJj" not in problem["detail"]
    assert OWN not in problem["detail"]


async def test_a_secret_may_be_a_text_or_an_array_and_null_is_not_given(api: Api) -> None:
    wanted = (await refusal(api, webhook=URL, webhook_secret=5))["detail"]
    assert wanted.endswith("must be a text, with commas between several, or an array of texts.")
    nothing = dict.fromkeys(("webhook_events", "webhook_secret", "webhook_include_output"))
    assert (await api.post(webhook=URL, **nothing)).status_code == 202


@pytest.mark.parametrize(
    "options", [{"webhook_events": ["job.failed"]}, {"webhook_secret": OWN}, {"webhook_include_output": True}]
)
async def test_an_option_of_webhooks_alone_has_no_meaning(api: Api, options: dict[str, Any]) -> None:
    problem = await refusal(api, **options)
    assert problem["option"] == next(iter(options))


async def test_a_server_without_a_secret_takes_only_jobs_with_their_own(store_url: str) -> None:
    async with running_api(Backend(store_url), models=[identity_spec()]) as api:
        assert "webhook_secret" in (await refusal(api, webhook=URL))["detail"]
        assert (await api.post(webhook=URL, webhook_secret=[OWN, SECRET])).status_code == 202


async def test_the_log_tells_each_attempt(api: Api) -> None:
    job_id, deliveries = await failed(api)
    assert (await api.job(job_id))["webhook"] == {"url": URL, "status": "failed", "attempts": 1}
    (shown,) = (await api.get(f"/jobs/{job_id}/deliveries")).json()["deliveries"]
    (stored,) = await deliveries.of_job(job_id)
    assert shown.pop("created_at") is not None
    assert shown == {
        "id": message(job_id, WebhookEvent.SUCCEEDED),
        "type": "job.succeeded",
        "url": URL,
        "status": "failed",
        "attempts": 1,
        "next_attempt_at": None,
        "log": [{"at": "2023-11-14T22:13:20.000Z", "status": 500, "duration_seconds": 1.5, "error": "status"}],
    }
    assert stored.attempts == 1


async def test_a_jobs_messages_can_be_sent_again(api: Api) -> None:
    job_id, _ = await failed(api)
    before = (await api.get(f"/jobs/{job_id}")).headers["etag"]
    response = await api.client.post(f"/jobs/{job_id}/deliveries/redeliver")
    assert response.status_code == 202
    body = response.json()
    assert (body["redelivered"], body["deliveries"][0]["status"]) == (1, "pending")
    assert body["deliveries"][0]["next_attempt_at"] is not None
    after = await api.get(f"/jobs/{job_id}", headers={"If-None-Match": before})
    assert (after.status_code, after.json()["webhook"]["status"]) == (200, "pending")


async def test_a_range_of_failed_messages_can_be_sent_again(api: Api) -> None:
    old, deliveries = await failed(api)
    await backdate(api, old)
    fresh, _ = await failed(api)
    waiting = await api.submit(webhook=URL)
    await api.hand.succeed(await api.hand.take(), floats(1.0))
    since = (datetime.now(UTC) - timedelta(days=5)).isoformat()
    response = await api.client.post("/deliveries/redeliver", params={"since": since})
    assert (response.status_code, response.json()) == (202, {"redelivered": 1, "next_since": None})
    statuses = {job_id: (await deliveries.of_job(job_id))[0].status.value for job_id in (old, fresh, waiting)}
    assert statuses == {old: "failed", fresh: "pending", waiting: "pending"}
    assert (await api.client.post("/deliveries/redeliver?status=failed")).json()["redelivered"] == 1
    assert (await api.client.post("/deliveries/redeliver")).json()["redelivered"] == 0
    assert (await api.client.post("/deliveries/redeliver?status=pending&since=0")).json()["redelivered"] == 3


async def backdate(api: Api, job_id: str) -> None:
    """Make a job's message one of ten days ago."""
    index, delivery = keys.undelivered_key(LOCAL_TENANT), message(job_id, WebhookEvent.SUCCEEDED)
    created_ms = round((datetime.now(UTC) - timedelta(days=10)).timestamp() * 1000)
    await api.store.connection.run(
        Call("ZADD", index, created_ms, delivery), Call("HSET", keys.delivery_key(delivery), "created_ms", created_ms)
    )


async def test_a_range_goes_on_where_it_was_left_and_forgets_what_is_gone(api: Api) -> None:
    index = keys.undelivered_key(LOCAL_TENANT)
    gone = [part for i in range(1500) for part in (i, message(f"{i:032x}", WebhookEvent.FAILED))]
    await api.store.connection.run(Call("ZADD", index, *gone))
    deliveries = Deliveries(api.store.connection)
    step = await deliveries.redeliver_since(LOCAL_TENANT, 0, DeliveryStatus.FAILED)
    assert step == (0, 999)
    job_id, _ = await failed(api)
    response = await api.client.post("/deliveries/redeliver")
    assert response.json() == {"redelivered": 1, "next_since": None}
    (left,) = await api.store.connection.run(Call("ZRANGE", index, 0, -1))
    assert left == [message(job_id, WebhookEvent.SUCCEEDED).encode()]


@pytest.mark.parametrize(
    "query", ["since=yesterday", "since=2024-01-01", "since=-1", "status=delivered", "since=1&since=2"]
)
async def test_a_bad_range_is_refused(api: Api, query: str) -> None:
    response = await api.client.post(f"/deliveries/redeliver?{query}")
    assert (response.status_code, response.json()["code"]) == (422, "invalid_parameter")


async def test_messages_of_others_do_not_exist(api: Api) -> None:
    """T: List/cancel/replay."""
    job_id, deliveries = await failed(api)
    ids = [message(job_id, WebhookEvent.SUCCEEDED)]
    assert await deliveries.redeliver("other", ids) == ["NOT_FOUND"]
    assert await deliveries.redeliver_since("other", 0, DeliveryStatus.FAILED) == (0, None)
    assert (await deliveries.of_job(job_id))[0].status is DeliveryStatus.FAILED
    for path in (f"/jobs/{'0' * 32}/deliveries", "/jobs/x/deliveries"):
        assert (await api.get(path)).status_code == 404
        assert (await api.client.post(f"{path}/redeliver")).status_code == 404


def test_secrets_are_kept_apart_by_tenant() -> None:
    text = f"{SECRET}, acme={OWN},{OWN} ,acme={SECRET}"
    assert tenant_secrets(text) == {"local": (SECRET, OWN), "acme": (OWN, SECRET)}
    assert tenant_secrets("") == {}
    with pytest.raises(ValueError, match="at most 2"):
        tenant_secrets(f"{SECRET},{SECRET},{OWN}")


def test_a_tenant_that_is_not_named_has_a_secret_of_its_own_by_the_star() -> None:
    secrets = tenant_secrets(f"acme={SECRET},*={OWN},*={SECRET}")
    assert secrets["acme"] == (SECRET,)
    assert secrets["b"] == (derived_secret(OWN, "b"), derived_secret(SECRET, "b"))
    assert len({*secrets["b"], *secrets["c"], *secrets["local"], OWN, SECRET}) == 8
    assert len(secret_key(secrets["b"][0])) == 32
    assert "local" in secrets
    assert "local" not in tenant_secrets(f"acme={SECRET}")


@pytest.mark.parametrize("text", ["hunter2", "whsec_YWJj", f"acme={SECRET[:-4]}!"])
def test_a_secret_that_cannot_be_used_is_not_told_on(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """T: Config; and a secret with a typing error in it is still nearly the secret."""
    monkeypatch.setenv("INFERQ_WEBHOOK_SECRET", text)
    with pytest.raises(SettingsError, match="INFERQ_WEBHOOK_SECRET=…") as refused:
        load(WebhookSettings)
    assert text not in str(refused.value)
    assert refused.value.__cause__ is None
    assert SECRET not in repr(WebhookSettings(webhook_secret=SecretStr(SECRET)))
