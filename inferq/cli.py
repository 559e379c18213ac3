"""The command line: names, options, help texts, and how a command that fails ends.

Only spelling stands here. What a command does is imported when it runs, so that this module stays light.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from inferq.commands.exit import CommandFailed

DEFAULT_URL: Final = "http://127.0.0.1:8080"
INTERRUPTED: Final = 130

app = typer.Typer(
    name="inferq",
    help="A durable job queue in front of NVIDIA Triton Inference Server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Url = Annotated[str, typer.Option("--url", envvar="INFERQ_URL", help="Address of the server.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until done; the exit status is 1 unless it succeeds.")]
Timeout = Annotated[float | None, typer.Option("--timeout", min=0, help="Wait at most so many seconds.")]
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]
JobIds = Annotated[list[str], typer.Argument(metavar="ID", help="The jobs' ids.", show_default=False)]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"inferq {version('inferq')}")
        raise typer.Exit


@app.callback()
def _inferq(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable job queue in front of NVIDIA Triton Inference Server."""


@app.command()
def up(
    host: Annotated[str, typer.Option(envvar="INFERQ_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="INFERQ_PORT", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8080,
    api: Annotated[int, typer.Option(min=1, help="How many api processes.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="How many inference workers.")] = 1,
    webhook_workers: Annotated[int, typer.Option(min=0, help="How many workers that send webhooks.")] = 1,
    models: Annotated[
        Path | None, typer.Option(file_okay=False, help="Triton model repository; the examples if not given.")
    ] = None,
    data: Annotated[Path, typer.Option(file_okay=False, help="Where the queue and the logs are kept.")] = Path(
        ".inferq"
    ),
    redis: Annotated[
        str | None, typer.Option(envvar="INFERQ_REDIS_URL", help="Use this Redis in place of an own Valkey.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            envvar="INFERQ_ENGINE", metavar="HOST:PORT", help="Use this Triton (gRPC) in place of an own one."
        ),
    ] = None,
    flags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- FLAG", help="Flags for the own Triton, such as --http-thread-count=8.", show_default=False
        ),
    ] = None,
) -> None:
    """Start everything on this machine and keep it running until Ctrl-C."""
    from inferq.commands import up as command
    from inferq.stack import StackOptions
    from inferq.stack.triton import MODELS

    command.up(
        StackOptions(
            host=host,
            port=port,
            api=api,
            workers=workers,
            webhook_workers=webhook_workers,
            models=models or MODELS,
            data=data,
            redis_url=redis,
            engine=engine,
            engine_flags=flags or (),
        )
    )


@app.command()
def listen(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 9000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="INFERQ_WEBHOOK_SECRET", metavar="whsec_…", help="What messages are signed with.", show_envvar=True
        ),
    ] = None,
    data: Annotated[
        Path, typer.Option(file_okay=False, help="The data of an `inferq up`, for its secret where none is given.")
    ] = Path(".inferq"),
    tenant: Annotated[str, typer.Option(help="Whose secret that is; tenants are called like their keys.")] = "local",
    as_json: AsJson = False,
) -> None:
    """Receive webhooks and print those that are signed with the secret."""
    from inferq.commands.listen import listen as run

    run(host, port, secret=secret, data=data, tenant=tenant, as_json=as_json)


@app.command()
def webhook_secret(
    tenant: Annotated[
        str, typer.Argument(metavar="TENANT", help="Whose; tenants are called like their keys.")
    ] = "local",
    data: Annotated[Path, typer.Option(file_okay=False, help="The data of the `inferq up`.")] = Path(".inferq"),
) -> None:
    """Print what `inferq up` signs a tenant's webhooks with where INFERQ_WEBHOOK_SECRET says nothing."""
    from inferq.commands.listen import own_secret

    print(own_secret(data, tenant))


@app.command()
def demo() -> None:
    """Start everything, classify a photo, print the labels, stop everything."""
    from inferq.demo import demo as run

    run()


@app.command()
def chaos(
    jobs: Annotated[int, typer.Option(min=1, help="How many jobs.")] = 2000,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the load and the killing last.")] = 2.0,
    seed: Annotated[int | None, typer.Option(help="Which kills; a random one if not given.")] = None,
    api: Annotated[int, typer.Option(min=1, help="How many api processes.")] = 2,
    workers: Annotated[int, typer.Option(min=1, help="How many inference workers.")] = 2,
) -> None:
    """Start everything, kill its parts at random under load, count the jobs, stop everything."""
    import secrets

    from inferq.commands.chaos import chaos as run

    run(jobs=jobs, minutes=minutes, seed=secrets.randbelow(10**6) if seed is None else seed, apis=api, workers=workers)


@app.command()
def submit(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.", show_default=False)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="A job for each: images, texts, .npy files; - is stdin.", show_default=False
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE", help="An input by name, for one job of several inputs."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the job, such as max_failures=1."),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(metavar="high|normal|low", help="Short for --option priority=…")
    ] = None,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Submit files to a model and print the jobs' ids, or with --wait their answers."""
    from inferq.commands import jobs

    said = [*(options or []), *([f"priority={priority}"] if priority else [])]
    jobs.submit(url, model, files or [], inputs or [], said, wait=wait, timeout=timeout, as_json=as_json)


@app.command()
def get(
    job_id: JobId, wait: Wait = False, timeout: Timeout = None, url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Show a job."""
    from inferq.commands import jobs

    jobs.get(url, job_id, wait=wait, timeout=timeout, as_json=as_json)


@app.command()
def result(
    job_id: JobId,
    output: Annotated[str | None, typer.Option(help="Only this output.")] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write it to a .json, .npy or .npz file.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show a job's result, or write it to a file."""
    from inferq.commands import jobs

    jobs.result(url, job_id, output=output, to=to, as_json=as_json)


@app.command()
def cancel(job_ids: JobIds, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Cancel jobs, whether they wait or run."""
    from inferq.commands import jobs

    jobs.cancel(url, job_ids, as_json=as_json)


@app.command()
def delete(
    job_ids: JobIds,
    force: Annotated[bool, typer.Option("--force", help="Even where a job is not done.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Forget jobs with their inputs and results."""
    from inferq.commands import jobs

    jobs.delete(url, job_ids, force=force)


@app.command(name="list")
def show_list(
    status: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    model: Annotated[str | None, typer.Option(help="Only jobs of this model.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from inferq.commands import jobs

    jobs.show_list(url, status=status, model=model, limit=limit, as_json=as_json)


@app.command()
def models(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the models, what they take and what they give."""
    from inferq.commands.models import show_models

    show_models(url, as_json=as_json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def keys(
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Option(file_okay=False, help="Data folder of `inferq up`, which need not run; if no INFERQ_REDIS_URL."),
    ] = Path(".inferq"),
) -> None:
    """API keys: create NAME [--scope submit,read,cancel] [--models a,b], list, revoke NAME, check."""
    from inferq.commands.keys import keys as command

    command(context.args, data)


def main() -> None:
    """The entry point: runs a command; what goes wrong becomes a sentence on stderr and an exit status."""
    try:
        app()
    except CommandFailed as exc:
        print(f"inferq: {exc.reason}", file=sys.stderr)
        if exc.next_step:
            print(exc.next_step, file=sys.stderr)
        sys.exit(exc.status)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
