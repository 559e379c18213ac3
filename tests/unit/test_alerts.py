"""What Prometheus is told: only of metrics and labels that there are, and of every alert stands what to do."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from inferq.stack import StackOptions
from tools.render_docs import FAMILIES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
LABELS = {each.name: set(each.labels) for families in FAMILIES.values() for each in families}
RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]


@pytest.fixture(scope="module")
def override() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.prometheus.yml").read_text())
    return loaded


def config(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / name).read_text())
    return loaded


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_metrics_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    asked = re.findall(r"\b(inferq_\w+)(?:\{([^}]*)\})?", rule["expr"])
    assert asked or "up{" in rule["expr"]
    for name, selector in asked:
        assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= LABELS[name]
    kept = {word for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for word in group.split(", ")}
    assert kept <= {label for name, _ in asked for label in LABELS[name]}


def test_what_to_do_is_said_of_every_alert() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert re.findall(r"^\| `(Inferq\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in RULES]
    assert set(re.findall(r"`(inferq_[a-z_]+)`", page)) <= LABELS.keys()


def test_under_up_prometheus_reads_the_ports_that_up_gives() -> None:
    targets = [
        (scraped["labels"]["service"] if "labels" in scraped else job["job_name"], target)
        for job in config("up.yml")["scrape_configs"]
        for scraped in job["static_configs"]
        for target in scraped["targets"]
    ]
    assert targets == [
        (name.removesuffix("-1"), f"127.0.0.1:{port}") for port, name in enumerate(StackOptions().names, 9400)
    ]


def test_under_compose_prometheus_reads_every_process(override: dict[str, Any]) -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(override)
    services = set(yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())["services"])
    (found,) = config("compose.yml")["scrape_configs"][0]["dns_sd_configs"]
    assert set(found["names"]) == services - {"redis", "triton"}
    for name in found["names"]:
        assert override["services"][name] == {
            "environment": {"INFERQ_METRICS_PORT": str(found["port"]), "INFERQ_METRICS_HOST": "0.0.0.0"}
        }
    assert set(override["services"]) == {*found["names"], "prometheus"}


def test_prometheus_is_no_root_and_is_not_published(override: dict[str, Any]) -> None:
    service = override["services"]["prometheus"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert not service["user"].startswith("0")
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert re.fullmatch(r".+:v\d+\.\d+\.\d+", service["image"])
    assert service["volumes"][0]["source"] == "./prometheus"
    assert "--config.file=/etc/prometheus/compose.yml" in service["command"]
