"""What the documents say is what the code says: settings, states, dependencies, commands, links."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import text_format

from inferq.cli import app
from inferq.stack.environment import PATH_VARIABLE
from jobs.settings import ENV_PREFIX
from jobs.variables import KNOWN, unknown_variables
from tools.render_docs import BLOCKS, PROCESSES, default_text, rendered
from workers.triton.parameter import KEY, parse
from workers.triton.pb.inference_pb2 import ModelConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", *PAGES)
COMPOSE_ONLY = {"API_PORT", "MODELS_DIR", "REDIS_MAXMEMORY", "REDIS_MEMORY_LIMIT"}


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize(("file", "name", "render"), BLOCKS, ids=[name for _, name, _ in BLOCKS])
def test_a_block_that_the_code_says_is_fresh(file: str, name: str, render: object) -> None:
    assert callable(render)
    text = text_of(file)
    assert rendered(text, name, render()) == text, f"{file} is stale: run python tools/render_docs.py"


def test_every_setting_is_in_the_example_with_its_default_and_nothing_else_is() -> None:
    defaults = {
        f"{ENV_PREFIX}{name.upper()}": default_text(field.default) if field.default_factory is None else ""
        for cls in PROCESSES.values()
        for name, field in cls.model_fields.items()
    }
    lines = re.findall(r"^#([A-Z][A-Z_]*)=(.*)$", text_of("deploy/.env.example"), re.MULTILINE)
    example = {name: value for name, value in lines if name not in COMPOSE_ONLY}
    assert len(lines) == len(example) + len(COMPOSE_ONLY), "a variable stands there twice"
    assert example == defaults


def test_every_variable_that_something_reads_is_known_at_the_start_of_each_process() -> None:
    settings = {f"{ENV_PREFIX}{name.upper()}" for cls in PROCESSES.values() for name in cls.model_fields}
    assert settings | {"INFERQ_URL", "INFERQ_API_KEY", PATH_VARIABLE} == KNOWN


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("INFERQ_MAX_QUEUE", "INFERQ_MAX_QUEUE is set, and nothing reads it; INFERQ_MAX_QUEUED may be meant."),
        ("INFERQ_REDIS", "INFERQ_REDIS_URL may be meant"),
        ("inferq_durabel", "INFERQ_DURABLE may be meant"),
        ("INFERQ_QQQQQQQQQQQQQQQQ", "INFERQ_QQQQQQQQQQQQQQQQ is set, and nothing reads it."),
    ],
)
def test_a_misspelled_variable_is_told_with_the_one_that_was_meant(name: str, said: str) -> None:
    (sentence,) = unknown_variables([name, "PATH", "INFERQ_DURABLE", "inferq_port"])
    assert said in sentence


def test_every_setting_says_what_it_means() -> None:
    for cls in PROCESSES.values():
        for name, field in cls.model_fields.items():
            assert field.description, f"{cls.__name__}.{name} has no description"


def dependencies() -> Iterator[str]:
    described = tomllib.loads(text_of("pyproject.toml"))["project"]
    extras = described["optional-dependencies"].values()
    stack = re.findall(r"^[a-z].*$", text_of("deploy/embedded/requirements.in"), re.MULTILINE)
    for requirement in [*described["dependencies"], *(item for extra in extras for item in extra), *stack]:
        name = re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]
        if not name.startswith("types-"):  # what they are for is their name
            yield name


@pytest.mark.parametrize("name", sorted(set(dependencies())))
def test_why_it_depends_on_a_library_is_said(name: str) -> None:
    table = text_of("ARCHITECTURE.md").partition("## What it is made of")[2]
    named = {word for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for word in re.split(r"[,\s]+", row)}
    assert name in named


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere_and_nothing_internal_is_named(document: str) -> None:
    text = text_of(document)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("http") or ((ROOT / document).parent / target).exists(), target
    assert not re.search(r"DESIGN\.md|STYLE\.md|BUGS\.md|THREATS\.md|issue \d", text)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_linked_from_the_readme(page: str) -> None:
    assert f"({page})" in text_of("README.md")


def test_every_command_in_the_readme_exists() -> None:
    readme = text_of("README.md")
    targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)", readme)) <= set(targets)
    functions = [(command.name, command.callback) for command in app.registered_commands]
    commands = {name or callback.__name__ for name, callback in functions if callback is not None}
    assert set(re.findall(r"(?:`|bin/|\$ )inferq ([a-z]+)", readme)) <= commands


def test_the_python_examples_are_python() -> None:
    examples = re.findall(r"```python\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert examples
    for code in examples:
        compile(code, "README.md", "exec")


def test_every_model_configuration_in_the_documents_can_be_read_with_the_parameter_in_it() -> None:
    text_of_all = "\n".join(map(text_of, DOCUMENTS))
    blocks = re.findall(r"^```\w*\n(.*?)^```", text_of_all, re.DOTALL | re.MULTILINE)
    configurations = [block for block in blocks if re.match(r"(?:name|backend|platform|parameters)\b[^\n]*[:{]", block)]
    assert configurations
    for text in configurations:
        parameters = text_format.Parse(text, ModelConfig()).parameters
        for key in {KEY} & set(parameters):
            parse(parameters[key].string_value)


def test_the_changelog_has_a_place_for_what_comes() -> None:
    assert re.findall(r"^## \[(.+?)\]", text_of("CHANGELOG.md"), re.MULTILINE)[0] == "Unreleased"
