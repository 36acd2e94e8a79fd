"""A configuration file and the folder it stands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from floorcast.config import Config
from floorcast.errors import ConfigError
from floorcast.parsing import parse_config
from floorcast.source import PrometheusSource, Source
from floorcast.units import floor_to_step


@dataclass(frozen=True)
class Project:
    """Relative paths of a configuration are relative to its file's folder."""

    file: Path
    config: Config

    @property
    def base(self) -> Path:
        return self.file.parent

    @property
    def store_path(self) -> Path:
        return self.base / self.config.store.path

    @property
    def output(self) -> Path:
        return self.base / self.config.output.dir

    @property
    def site(self) -> Path:
        return self.output / "site"

    @property
    def state_dir(self) -> Path:
        """The folder of what the service remembers."""
        given = self.config.service.state_dir
        return self.output / "service" if given is None else self.base / given

    def as_of(self, now: datetime) -> datetime:
        """The step boundary that a run at `now` stands for: two runs within one step are the same run."""
        return floor_to_step(now, self.config.step)


def load_project(file: Path, *, environment: Mapping[str, str], settings: Mapping[str, str] | None = None) -> Project:
    """Read and validate a configuration file, `settings` in place of its values by key. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            "no such file", where=str(file), remedy="write one with `floorcast init`, or name yours with --config"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not UTF-8 at byte {error.start}"
        raise ConfigError(
            f"cannot be read: {reason}", where=str(file), remedy="name a readable YAML file in UTF-8"
        ) from None
    config = parse_config(text, file=str(file), environment=environment, settings=settings)
    # Links are kept: what they lead to may be replaced as a whole, as a ConfigMap's folder is, and be gone then.
    file = file.absolute()
    sources = tuple(_anchored(source, file.parent) for source in config.sources)
    return Project(file, config.model_copy(update={"sources": sources}))


def _anchored(source: Source, base: Path) -> Source:
    """The source with the paths of its credentials made absolute: its client knows no configuration file."""
    if not isinstance(source, PrometheusSource):
        return source

    def at(path: str | None) -> str | None:
        return path and str(base / path)

    tls = source.tls
    tls = tls.model_copy(update={"ca": at(tls.ca), "cert": at(tls.cert), "key": at(tls.key)})
    return source.model_copy(update={"bearer_token_file": at(source.bearer_token_file), "tls": tls})
