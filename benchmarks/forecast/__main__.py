"""floorcast's forecasts against last value, seasonal naive, ARIMA, Holt-Winters and FFT extrapolation."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks.forecast.data import Pair, demo_series, read_pair
from benchmarks.forecast.judge import Row, judge_series, why_left_out
from benchmarks.forecast.scale import measure
from benchmarks.forecast.summary import frame_of, summarise
from benchmarks.forecast.table import render
from benchmarks.forecast.tried import try_series
from benchmarks.forecast.tried_table import kept_in, put_into, sections
from benchmarks.report import parser, peak_memory_gib, write
from floorcast.errors import FloorcastError
from forecasting.series import Series
from pipelines.progress import track

DATA = Path(os.environ.get("FLOORCAST_DATA", Path(__file__).parents[3] / "shared" / "data"))
MODELS = ("m-small", "m-large")


def pairs_of(given: argparse.Namespace) -> list[Pair]:
    """The pairs named, else those of the folder of traces. Exits where files do not pair up or there are none."""
    rates, lengths = given.rates or [], given.lengths or []
    if len(rates) != len(lengths):
        raise SystemExit(f"{len(rates)} files of rates and {len(lengths)} of lengths: name both of each model")
    named = [Pair(*files) for files in zip(rates, lengths, strict=True)]
    found = named or [
        Pair(*(DATA / f"servegen_{model}_{part}.parquet" for part in ("rates", "lengths")))
        for model in MODELS
        if (DATA / f"servegen_{model}_rates.parquet").is_file()
    ]
    if not found:
        raise SystemExit(f"no traces at {DATA}: set FLOORCAST_DATA, or name files with --rates and --lengths")
    return found


def on_cores(judge: Callable[[Series], list[Row]], series: Sequence[Series]) -> list[Row]:
    """Rows of all series, one process a core."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context, initializer=threadpool_limits, initargs=(1,)) as pool:
        judged = track(pool.map(judge, series), total=len(series), label="judging")
        return list(chain.from_iterable(judged))


def main() -> None:
    arguments = parser("forecast", __doc__ or "")
    arguments.add_argument("--rates", type=Path, action="append", help="a ServeGen file of rates; may be repeated")
    arguments.add_argument("--lengths", type=Path, action="append", help="its file of lengths, in the same order")
    arguments.add_argument("--classes", type=int, default=1000, help="of the timing; 0 leaves it out")
    arguments.add_argument("--demo-weeks", type=int, default=6, help="of the demo fleet's traffic; 0 leaves it out")
    arguments.add_argument(
        "--tried", action="store_true", help="only what other candidates would change, into the page"
    )
    given = arguments.parse_args()
    if given.demo_weeks == 1:
        raise SystemExit("one week of demo history is too short to be judged: give 2 or more, or 0")
    pairs = pairs_of(given)
    began = time.perf_counter()
    try:
        series = [one for pair in pairs for one in read_pair(pair)]
    except FloorcastError as error:
        raise SystemExit(str(error)) from None
    reasons = {f"{one.workload_class} {one.metric}": why_left_out(one) for one in series}
    left_out = {name: why for name, why in reasons.items() if why}
    judged = [one for one in series if reasons[f"{one.workload_class} {one.metric}"] is None]
    if not judged:
        raise SystemExit(f"nothing can be judged: {next(iter(left_out.values()))}")
    page = given.json.with_suffix(".md") if given.json else None
    before = page.read_text(encoding="utf-8") if page and page.is_file() else ""
    if given.tried:
        demo = demo_series(weeks=given.demo_weeks) if given.demo_weeks else []
        made = sections({"ServeGen": on_cores(try_series, judged), "demo": on_cores(try_series, demo)})
        if page:
            page.write_text(put_into(before, made), encoding="utf-8")
        raise SystemExit(None if page else made)
    frame = frame_of(on_cores(judge_series, judged))
    summary, detail = summarise(frame)
    detail |= {"models": [pair.model for pair in pairs], "left_out": left_out, "seconds": time.perf_counter() - began}
    of_demo = None
    if given.demo_weeks:
        of_demo = frame_of(on_cores(judge_series, demo_series(weeks=given.demo_weeks)))
        demo_summary, detail["demo"] = summarise(of_demo)
        summary |= {f"demo_{name}": value for name, value in demo_summary.items()}
    if given.classes:
        timed, how = measure(given.classes)
        summary |= timed
        detail["timing"] = how
    summary["peak_memory_gib"] = peak_memory_gib()
    write("forecast", summary=summary, detail=detail, out=given.json)
    if page:
        rendered = render(frame, summary, detail, of_demo)
        page.write_text(put_into(rendered, kept) if (kept := kept_in(before)) else rendered, encoding="utf-8")


if __name__ == "__main__":
    main()
