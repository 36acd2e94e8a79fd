"""Fits on this machine's cores and on a real Dask scheduler with real workers; processes are killed under both."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import psutil
import pytest
from distributed import Client
from threadpoolctl import threadpool_limits

from floorcast.columns import Metric
from floorcast.errors import ConfigError, ForecastError
from forecasting.forecast import Forecast, Request, StoredFit
from forecasting.series import Series
from forecasting.verdict import Target
from pipelines.stages import fanout
from pipelines.stages.fanout import Fitted, Job, fit_all, fit_on_cores, fit_on_dask, forecast_on_cores
from pipelines.stages.fit import fit

ROOT = Path(__file__).parents[3]
HOUR = timedelta(hours=1)
START = datetime(2026, 11, 1, tzinfo=UTC)
TARGET = Target(quantile=0.95, lead_steps=2, horizon_steps=12)
NOWHERE = "tcp://127.0.0.1:9"


class Deadly(Series):
    """A series whose arrival ends the process, as one does that takes all memory."""

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (1,)


def series(name: str, *, kind: type[Series] = Series, steps: int = 120) -> Series:
    hours = np.arange(steps)
    noise = np.random.default_rng(len(name)).lognormal(0, 0.1, steps)
    return kind(name, Metric.TOKENS_IN, START, HOUR, 900 * (1.5 + np.sin(2 * np.pi * hours / 24)) * noise)


JOBS: list[Job] = [(series(name), TARGET) for name in ("a", "bb", "ccc", "dddd", "eeeee")]


def fits(done: Iterable[Fitted]) -> list[dict[str, object]]:
    """The fits themselves, parameters and margins as the text that is stored."""
    return sorted((row for rows, _ in done for row in rows), key=lambda row: (row["workload_class"], row["horizon"]))


@pytest.fixture(scope="module")
def expected() -> list[dict[str, object]]:
    """What one process makes of the jobs."""
    with threadpool_limits(1):
        return fits(
            [fanout.fit_series(one, cutoff=one.end, target=target, timer=time.perf_counter) for one, target in JOBS]
        )


def bare(folder: Path) -> Path:
    """Where floorcast cannot be imported from."""
    for package in ("floorcast", "forecasting", "pipelines"):
        (folder / "bare" / package).mkdir(parents=True, exist_ok=True)
        (folder / "bare" / package / "__init__.py").touch()
    return folder / "bare"


class Cluster:
    """A scheduler and its workers, processes of Dask's own commands."""

    def __init__(self, folder: Path, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.folder, self.environment, self.processes = folder, environment, []
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", str(port), "--dashboard-address", ":0"
        )

    def add_workers(self, count: int, path: Path = ROOT) -> None:
        """`path` is where they import floorcast from."""
        self._start("worker", self.address, "--nworkers", str(count), "--nthreads", "1", "--no-dashboard",
                    "--local-directory", str(self.folder), path=path)  # fmt: skip

    def _start(self, part: str, *words: str, path: Path = ROOT) -> subprocess.Popen[bytes]:
        with (self.folder / f"{part}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", part, *words],
                env={**os.environ, **self.environment, "PYTHONPATH": str(path)},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def worker_pids(self) -> list[int]:
        with Client(self.address, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            return list(client.run(os.getpid).values())

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait(30)


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def start(**environment: str) -> Cluster:
        started.append(Cluster(tmp_path, **environment))
        return started[-1]

    yield start
    for cluster in started:
        cluster.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    made.add_workers(2)
    yield made
    made.end()


def test_processes_of_this_machine_make_the_fits_that_one_makes(expected) -> None:
    assert fits(fit_all(JOBS, scheduler=None)) == expected


def test_workers_of_a_cluster_make_the_fits_that_one_process_makes(cluster, expected) -> None:
    assert fits(fit_all(JOBS, scheduler=cluster.address)) == expected


def test_a_fit_over_dask_stores_what_a_local_one_stores(cluster, published, reconfigure, dump, now) -> None:
    local = dump(published)
    published = reconfigure(published, "step: 1h", f"step: 1h\ncompute: {{scheduler: '{cluster.address}'}}")
    (published.store_path).rename(published.base / "local.duckdb")
    shutil.copy(published.base / "local.duckdb", published.store_path)
    fit(published, now)
    after = dump(published)
    assert after["fits"] == local["fits"]
    assert after["scores"] == local["scores"]


def test_workers_killed_midway_lose_nothing(cluster, expected) -> None:
    """All of them at once, each in the middle of a fit; their nannies start new ones."""
    doomed = cluster.worker_pids()
    assert len(doomed) == 2
    done = []
    for number, fitted in enumerate(fit_on_dask(JOBS, cluster.address)):
        if number == 0:
            for pid in doomed:
                os.kill(pid, signal.SIGKILL)
        done.append(fitted)
    assert fits(done) == expected
    assert not set(cluster.worker_pids()) & set(doomed)


def test_processes_of_this_machine_killed_midway_lose_nothing(expected) -> None:
    done = []
    for number, fitted in enumerate(fit_on_cores(JOBS)):
        if number == 0:
            # Children of the fork server, which is a child of this process.
            grandchildren = [one for child in psutil.Process().children() for one in child.children()]
            assert grandchildren
            grandchildren[0].kill()
        done.append(fitted)
    assert fits(done) == expected


def test_a_series_that_kills_every_process_is_given_up_and_named() -> None:
    deadly = (series("glutton", kind=Deadly), TARGET)
    with pytest.raises(ForecastError, match=r"glutton tokens_in: worker processes were killed 3 times"):
        list(fit_on_cores([JOBS[0], deadly]))


def requests(expected: list[dict[str, object]], *, kind: type[Series] = Series) -> list[Request]:
    """A forecast of every job, by its fits, and one that cannot be."""
    made = []
    for one, target in JOBS:
        fitted = {
            row["horizon"]: StoredFit(*(str(row[key]) for key in ("model", "parameters", "margins")))
            for row in expected
            if row["workload_class"] == one.workload_class
        }
        sent = series(one.workload_class, kind=kind)
        made.append(Request(sent, sent.end, target, fitted["lead"], fitted.get("outlook")))
    return [*made, replace(made[0], lead=replace(made[0].lead, model="of a later version"))]


def told(made: list[Forecast | str]) -> list[object]:
    return [one if isinstance(one, str) else one.frame.rows() for one in made]


@pytest.mark.parametrize("kind", [Series, Deadly])
def test_processes_of_this_machine_make_the_forecasts_that_one_makes(monkeypatch, expected, kind) -> None:
    """Also where they are killed."""
    here = told(forecast_on_cores(requests(expected)))
    assert sum(isinstance(one, list) for one in here) == len(JOBS)
    assert "'of a later version' is not known" in str(here[-1])
    monkeypatch.setattr(fanout, "WORTH_FORECASTING", 2)
    monkeypatch.setattr(fanout, "TOGETHER", 2)
    assert told(forecast_on_cores(requests(expected, kind=kind))) == here


def test_an_error_of_a_worker_process_comes_out_whole() -> None:
    error = pickle.loads(pickle.dumps(ForecastError("no", where="there", remedy="do")))
    assert (error.what, error.where, error.remedy) == ("no", "there", "do")


def test_a_scheduler_that_is_not_there_is_named_in_time(monkeypatch) -> None:
    monkeypatch.setattr(fanout, "CONNECT_S", 1.0)
    began = time.monotonic()
    with pytest.raises(ForecastError, match=rf"{NOWHERE}: the Dask scheduler does not answer"):
        list(fit_on_dask(JOBS, NOWHERE))
    assert time.monotonic() - began < 10


def test_without_anything_to_fit_no_scheduler_is_asked() -> None:
    assert list(fit_all([], scheduler=NOWHERE)) == []


def test_a_scheduler_that_is_not_there_stops_no_publication(monkeypatch, published, reconfigure, live, now) -> None:
    monkeypatch.setattr(fanout, "CONNECT_S", 1.0)
    published = reconfigure(published, "step: 1h", f"step: 1h\ncompute: {{scheduler: '{NOWHERE}'}}")
    later = now + HOUR
    live(published, later, "ingest")
    with pytest.raises(ForecastError, match=NOWHERE):
        live(published, later, "fit")
    done = live(published, later, "forecast", "plan", "publish")
    assert done["forecast"].result.series == 6
    assert done["publish"].result.version == 2


def test_a_scheduler_without_workers_is_told_in_time(monkeypatch, start_cluster) -> None:
    monkeypatch.setattr(fanout, "PATIENCE_S", 1.0)
    address = start_cluster().address
    with pytest.raises(ForecastError, match=rf"{address}: the Dask scheduler has no workers") as caught:
        list(fit_on_dask(JOBS, address))
    assert f"dask worker {address}" in caught.value.remedy


def test_workers_that_finish_nothing_are_told_in_time(monkeypatch, start_cluster) -> None:
    monkeypatch.setattr(fanout, "PATIENCE_S", 1.0)
    monkeypatch.setattr(fanout, "STALLED_S", 2.0)
    cluster = start_cluster()
    cluster.add_workers(1)
    os.kill(cluster.worker_pids()[0], signal.SIGSTOP)
    with pytest.raises(ForecastError, match=rf"{cluster.address}: the Dask workers finished nothing for 2 s"):
        list(fit_on_dask(JOBS, cluster.address))


def test_a_scheduler_killed_midway_is_told(start_cluster) -> None:
    cluster = start_cluster()
    cluster.add_workers(1)
    done = fit_on_dask(JOBS, cluster.address)
    next(done)
    cluster.scheduler.kill()
    with pytest.raises(ForecastError, match=rf"{cluster.address}: the connection to the Dask scheduler was lost"):
        list(done)


def test_a_worker_with_other_code_is_refused(start_cluster, tmp_path) -> None:
    """Of the same version, as checkouts are, with one line changed."""
    for package in ("floorcast", "forecasting", "pipelines", "store"):
        shutil.copytree(ROOT / package, tmp_path / "other" / package)
    with (tmp_path / "other" / "forecasting" / "series.py").open("a") as file:
        file.write("\n# changed\n")
    cluster = start_cluster()
    cluster.add_workers(1, path=tmp_path / "other")
    here = fanout.versions()["floorcast"]
    with pytest.raises(ForecastError, match=r"has floorcast 0.1.0 \(code \w{8}\) in place of") as caught:
        list(fit_on_dask(JOBS, cluster.address))
    assert caught.value.what.endswith(f"in place of {here}")
    assert socket.gethostname() in caught.value.what


def test_a_worker_without_floorcast_is_told(start_cluster, tmp_path) -> None:
    cluster = start_cluster()
    cluster.add_workers(1, path=bare(tmp_path))
    with pytest.raises(ForecastError, match=r"the Dask worker on .* cannot import floorcast: No module named"):
        list(fit_on_dask(JOBS, cluster.address))


def test_a_series_that_kills_every_worker_is_named(start_cluster) -> None:
    cluster = start_cluster(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    cluster.add_workers(1)
    deadly = (series("glutton", kind=Deadly), TARGET)
    with pytest.raises(ForecastError, match="a Dask worker could not fit glutton tokens_in: KilledWorker"):
        list(fit_on_dask([deadly], cluster.address))


def test_dask_that_is_not_installed_is_told(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"(?s)compute.scheduler: .*extra `dask`"):
        list(fit_on_dask(JOBS, NOWHERE))


def test_a_run_without_a_scheduler_does_not_import_dask_of_clusters() -> None:
    code = "import sys, pipelines.stages.runner; sys.exit('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(("jobs", "tasks", "largest"), [(1, 1, 1), (499, 499, 1), (500, 250, 2), (2001, 251, 8)])
def test_many_series_go_in_batches_and_each_goes_once(jobs: int, tasks: int, largest: int) -> None:
    batches = fanout._batches([(number, None) for number in range(jobs)])
    assert [number for batch in batches for number, _ in batch] == list(range(jobs))
    assert (len(batches), max(map(len, batches))) == (tasks, largest)
