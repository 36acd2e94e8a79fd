"""`floorcast`: the entry point."""

from __future__ import annotations

import json
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from floorcast import __version__
from floorcast.errors import FloorcastError
from pipelines.cli import (
    backtest,
    calibrate,
    cost,
    cycle,
    demo,
    diff,
    explain,
    rbac,
    replay,
    serve,
    setup,
    stages,
    status,
    tune,
    whatif,
)

EPILOG = """\
Exit codes: 0 done; 1 unexpected; 2 configuration or usage; 3 input data; 4 database; 5 forecast; 6 publication;
7 not found; 8 a cycle that published although a stage failed; 9 a plan or cycle with a floor that is
less than it should be; 10 a publish or cycle with a publisher that failed or met a conflict; 130 interrupted;
143 terminated.
"""

INTERRUPTED = 130
TERMINATED = 143

app = typer.Typer(
    name="floorcast",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for module in (
    *(setup, demo, stages, cycle, serve, rbac, explain, diff, whatif, status, calibrate, backtest, replay, tune, cost),
):
    module.register(app)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"floorcast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Forecasts the token traffic of LLM inference fleets and publishes minimum replicas."""


def main() -> None:
    """Run a command. Errors of ours are printed without a trace; with --json as a document on standard output."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except FloorcastError as error:
        if "--json" in sys.argv:
            document = {"what": error.what, "where": error.where, "remedy": error.remedy, "exit_code": error.exit_code}
            typer.echo(json.dumps({"error": document}, indent=2))
        else:
            typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if ended.code in (INTERRUPTED, TERMINATED):
            typer.echo("interrupted; what was committed is kept", err=True)
        raise


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    """Ends like Ctrl-C, so that a Prefect server and workers are ended too, which a plain SIGTERM would orphan."""
    sys.exit(TERMINATED)


if __name__ == "__main__":
    main()
