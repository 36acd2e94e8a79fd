"""Many series fitted or forecast at once: on all cores of this machine, or fitted by the workers of a Dask cluster,
with the same results."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import threadpool_limits

import floorcast
import forecasting
from floorcast.errors import ConfigError, ForecastError
from forecasting.forecast import TOGETHER, Forecast, Request, forecast_all
from forecasting.rows import Row
from forecasting.selection import fit_series
from forecasting.series import Series
from forecasting.verdict import Target

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as DaskFuture

    Outcome = DaskFuture["list[Fitted] | str"]

J = TypeVar("J")
R = TypeVar("R")

Job = tuple[Series, Target]
Fitted = tuple[list[Row], list[Row]]
"""What `fit_series` returns: rows of FITS, and rows of SCORES."""

WORTH_A_PROCESS = 4
"""Fewer series than this are fitted here: starting workers costs more than it saves."""

WORTH_FORECASTING = 4 * TOGETHER
"""The same of forecasts, which take some 20 ms of a series."""

LOCAL_ATTEMPTS = 3
"""How often worker processes of this machine may die before what is left is given up."""

CONNECT_S = 15.0
"""How long a scheduler may take to answer."""

PATIENCE_S = 120.0
"""How long a scheduler may be without any worker: clusters that scale from none need a machine first."""

STALLED_S = 1800.0
"""How long workers may go without finishing a batch. They may be paused for want of memory, for ever."""

BATCHES = 250
LARGEST_BATCH = 8
"""A series is a task, so that little is lost with a worker, until there are twice this many; then they go in batches,
since submitting and collecting a task takes some 6 ms of this process."""


def fit_all(jobs: Sequence[Job], *, scheduler: str | None) -> Iterator[Fitted]:
    """Fit every series at its own end, in whatever order they get done.

    `scheduler`: a Dask scheduler's address; None means the cores of this machine. Raises ForecastError where workers
    are lost for good, and what `fit_on_dask` raises.
    """
    if not jobs:
        return
    if scheduler is not None:
        yield from fit_on_dask(jobs, scheduler)
    elif len(jobs) < WORTH_A_PROCESS or (os.cpu_count() or 1) == 1:
        with threadpool_limits(1):
            for job in jobs:
                yield _fit(job)
    else:
        yield from fit_on_cores(jobs)


def fit_on_cores(jobs: Sequence[Job]) -> Iterator[Fitted]:
    """Fit in a process for each core, as `on_cores`."""
    yield from on_cores(_fit, jobs, names=_names)


def on_cores(work: Callable[[J], R], jobs: Sequence[J], *, names: Callable[[Sequence[J]], str]) -> Iterator[R]:
    """What `work` makes of the jobs in a process for each core, in whatever order they get done. What a killed process
    had not finished is done again; raises ForecastError where that goes on, with the `names` of what is left."""
    left = dict(enumerate(jobs))
    for _ in range(LOCAL_ATTEMPTS):
        try:
            for place, done in _in_processes(work, left):
                del left[place]
                yield done
        except BrokenProcessPool:
            continue
        return
    raise ForecastError(
        f"worker processes were killed {LOCAL_ATTEMPTS} times, {len(left)} of {len(jobs)} series are not done",
        where=names(list(left.values())),
        remedy="look whether the machine runs out of memory; workers of a Dask cluster can take the load off fits",
    )


def forecast_on_cores(requests: Sequence[Request]) -> list[Forecast | str]:
    """What `forecast_all` returns, made in a process for each core where there are many series. What a killed process
    had not finished is forecast in this one."""
    if len(requests) < WORTH_FORECASTING or (os.cpu_count() or 1) == 1:
        return _forecast_here(requests)
    # Those that share a lead window, and those of like length, are the faster for being forecast together.
    alike = sorted(range(len(requests)), key=lambda place: _kind(requests[place]))
    batches = {first: alike[first : first + TOGETHER] for first in range(0, len(alike), TOGETHER)}
    made: dict[int, list[Forecast | str]] = {}
    try:
        wanted = {first: [requests[place] for place in batch] for first, batch in batches.items()}
        made.update(_in_processes(forecast_all, wanted))
    except BrokenProcessPool:
        made |= {first: _forecast_here(wanted[first]) for first in wanted.keys() - made.keys()}
    placed = {place: one for first, batch in batches.items() for place, one in zip(batch, made[first], strict=True)}
    return [placed[place] for place in range(len(requests))]


def _forecast_here(requests: Sequence[Request]) -> list[Forecast | str]:
    with threadpool_limits(1):
        return forecast_all(requests)


def _kind(request: Request) -> tuple[float, int, int]:
    return request.series.step.total_seconds(), request.target.due_steps, len(request.series.values)


def _in_processes(work: Callable[[J], R], jobs: dict[int, J]) -> Iterator[tuple[int, R]]:
    # Forking this process would copy the threads' locks of polars and DuckDB; a fork server starts clean.
    context = multiprocessing.get_context("forkserver")
    # What only fits and forecasts import, when they begin: here once for all workers.
    context.set_forkserver_preload(["pipelines.stages.fanout", "scipy.signal", "statsforecast.models"])
    workers = min(os.cpu_count() or 1, len(jobs))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker) as pool:
        places: dict[Future[R], int] = {pool.submit(work, job): place for place, job in jobs.items()}
        for future in as_completed(places):
            yield places[future], future.result()


def _begin_worker() -> None:
    # The matrices are small: BLAS threads of several workers would only wait for each other.
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker where the process that it works for was killed: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def fit_on_dask(jobs: Sequence[Job], scheduler: str) -> Iterator[Fitted]:
    """Fit by the workers of a Dask cluster. What a worker that dies had not handed in is done by the others.

    Raises ConfigError where Dask is not installed, and ForecastError where the scheduler does not answer within
    `CONNECT_S`, goes away, has no worker for `PATIENCE_S`, where nothing gets done for `STALLED_S`, where a worker's
    floorcast differs from this one, or where a fit cannot be done there.
    """
    done: SimpleQueue[Outcome] = SimpleQueue()
    with _connect(scheduler) as client:
        task = _task()
        # Dask forgets what nobody holds the future of.
        left: dict[Outcome, Sequence[Job]] = {}
        for batch in _batches(jobs):
            future = client.submit(task, versions(), pickle.dumps(batch), pure=False)
            left[future] = batch
            future.add_done_callback(done.put)
        silent_s = 0.0
        while left:
            try:
                future = done.get(timeout=PATIENCE_S)
            except Empty:
                silent_s += PATIENCE_S
                _expect_workers(client, scheduler)
                if silent_s >= STALLED_S:
                    raise ForecastError(
                        f"the Dask workers finished nothing for {silent_s:.0f} s",
                        where=scheduler,
                        remedy="look at the scheduler's dashboard whether workers are paused for want of memory",
                    ) from None
                continue
            silent_s = 0.0
            yield from _result(future, left.pop(future), scheduler)


def _connect(scheduler: str) -> Client:
    try:
        from distributed import Client  # noqa: PLC0415 - optional, and no other run should wait for its import
    except ImportError as error:
        raise ConfigError(
            f"a Dask scheduler is configured, but Dask cannot be imported: {error}",
            where="compute.scheduler",
            remedy="install floorcast with its extra `dask`, or remove the key to fit on this machine",
        ) from None
    try:
        return Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ForecastError(
            f"the Dask scheduler does not answer: {error}",
            where=scheduler,
            remedy="start it, correct compute.scheduler, or remove that key to fit on this machine",
        ) from None


def _batches(jobs: Sequence[Job]) -> list[Sequence[Job]]:
    size = min(max(len(jobs) // BATCHES, 1), LARGEST_BATCH)
    return [jobs[first : first + size] for first in range(0, len(jobs), size)]


def _expect_workers(client: Client, scheduler: str) -> None:
    try:
        workers = client.nthreads(callback_timeout=CONNECT_S)
    except (OSError, TimeoutError) as error:
        raise ForecastError(
            f"the Dask scheduler no longer answers: {error}", where=scheduler, remedy="look at its log, and fit again"
        ) from None
    if not workers:
        raise ForecastError(
            f"the Dask scheduler has no workers, and nothing was fitted for {PATIENCE_S:.0f} s",
            where=scheduler,
            remedy=f"start some, as in `dask worker {scheduler} --nworkers auto --nthreads 1`",
        )


def _result(future: Outcome, batch: Sequence[Job], scheduler: str) -> list[Fitted]:
    if future.cancelled():
        raise ForecastError(
            "the connection to the Dask scheduler was lost",
            where=scheduler,
            remedy="look at the scheduler's log, and fit again",
        )
    error = future.exception()
    if error is not None:
        raise ForecastError(
            f"a Dask worker could not fit {_names(batch)}: {type(error).__name__}: {error}",
            where=scheduler,
            remedy="look at the log of the worker; where workers are killed, give them more memory",
        )
    outcome = future.result()
    if isinstance(outcome, str):
        raise ForecastError(
            outcome, where=scheduler, remedy="install the same floorcast and lock file there, and restart the workers"
        )
    return outcome


def _task() -> Callable[[dict[str, str], bytes], list[Fitted] | str]:
    """What Dask runs. Being local it is sent whole, and batches come as bytes: a scheduler needs no floorcast, and a
    worker that has none says so, where the arrival of what it cannot unpickle would end it."""

    def fit_series_of_floorcast(made_with: dict[str, str], batch: bytes) -> list[Fitted] | str:
        import platform  # noqa: PLC0415 - what is outside this function is not sent

        try:
            from pipelines.stages.fanout import fit_batch  # noqa: PLC0415 - the worker's own
        except ImportError as error:
            return f"the Dask worker on {platform.node()} cannot import floorcast: {error}"
        return fit_batch(made_with, batch)

    return fit_series_of_floorcast


def fit_batch(made_with: dict[str, str], batch: bytes) -> list[Fitted] | str:
    """The fits of a pickled batch of jobs, made in a worker; or how this worker differs from `made_with`, the versions
    that it must have so that its fits are those of any other."""
    here = versions()
    differ = [
        f"{name} {here.get(name)} in place of {wanted}"
        for name, wanted in made_with.items()
        if here.get(name) != wanted
    ]
    if differ:
        return f"the Dask worker on {platform.node()} has {', '.join(differ)}"
    # Without an end, as other threads of this worker are fitting too.
    threadpool_limits(1)
    return [_fit(job) for job in pickle.loads(batch)]


@cache
def versions() -> dict[str, str]:
    """What fits depend on beside their data. The digest of the code tells checkouts of one version apart, and workers
    that imported it before it changed."""
    code = hashlib.sha256()
    for package in (floorcast, forecasting):
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            code.update(file.read_bytes())
    libraries = {name: version(name) for name in ("numpy", "scipy", "coreforecast", "statsforecast")}
    return {"floorcast": f"{version('floorcast')} (code {code.hexdigest()[:8]})", **libraries}


def _fit(job: Job) -> Fitted:
    series, target = job
    return fit_series(series, cutoff=series.end, target=target, timer=time.perf_counter)


def _names(jobs: Sequence[Job]) -> str:
    names = [f"{series.workload_class} {series.metric}" for series, _ in jobs[:LARGEST_BATCH]]
    return ", ".join(names) + (f" and {len(jobs) - len(names):,} more" if len(jobs) > len(names) else "")
