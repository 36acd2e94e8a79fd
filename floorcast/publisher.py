"""Where floors go beside the schedule and the manifests: the configuration's `publishers`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from floorcast.pool import Target
from floorcast.references import unknown_pool
from floorcast.section import Fraction, Name, Section
from floorcast.units import Duration, format_duration

if TYPE_CHECKING:
    from floorcast.config import Config

Value = Literal["floor", "decision"]


class PublisherEntry(Section):
    """What every publisher has."""

    name: Name | None = Field(
        default=None, description="what `status`, pages and errors call it; its kind unless given; unique"
    )
    pools: tuple[Name, ...] = Field(default=(), description="the pools whose floors it carries; all unless given")

    @property
    def label(self) -> str:
        return self.name or str(getattr(self, "kind", ""))

    def carries(self, pool: str) -> bool:
        return not self.pools or pool in self.pools


class CsvPublisher(PublisherEntry):
    """The schedule as a table, one row a window: `schedule.csv` in the output folder."""

    kind: Literal["csv"] = Field(description="`schedule.csv`")


class ParquetPublisher(PublisherEntry):
    """The same table as `schedule.parquet`, with its types."""

    kind: Literal["parquet"] = Field(description="`schedule.parquet`")


class CronPublisher(PublisherEntry):
    """KEDA ScaledObjects whose floors are dated cron triggers in UTC, `cron/POOL.yaml`: they go on where floorcast and
    all that reads its schedule are gone."""

    kind: Literal["cron"] = Field(description="`cron/POOL.yaml`")
    triggers: int = Field(
        default=24, ge=1, le=200, description="triggers of a pool at most; neighbouring floors are merged to the higher"
    )
    overlap: Duration = Field(
        default=timedelta(minutes=2),
        description="how long a trigger goes on beside the next, since KEDA dips where two abut; whole minutes",
    )
    hold: Duration = Field(
        default=timedelta(days=7),
        description="how long after the horizon the last floor goes on if nothing replaces the manifest, at most 180d",
    )
    tolerance: Fraction = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="of the cluster's autoscalers, past which floors are raised; 0 sends the bare floor",
    )

    @model_validator(mode="after")
    def _whole_minutes(self) -> Self:
        minute = timedelta(minutes=1)
        if self.overlap < minute or self.overlap % minute or self.overlap > timedelta(hours=1):
            raise PydanticCustomError(
                "bad_overlap",
                "overlap {overlap} is not whole minutes up to an hour",
                {"overlap": format_duration(self.overlap), "at": ("overlap",), "hint": "use 1m or 2m"},
            )
        if self.hold > timedelta(days=180):
            raise PydanticCustomError(
                "bad_hold",
                "hold {hold} is more than half a year, and dated triggers come again every year",
                {"hold": format_duration(self.hold), "at": ("hold",), "hint": "use a few days"},
            )
        return self


class AwsPublisher(PublisherEntry):
    """Documents for AWS Application Auto Scaling, `aws/POOL/`: the minimum now, and scheduled actions for later."""

    kind: Literal["aws"] = Field(description="`aws/POOL/`, and `aws/apply.sh` that hands them to the AWS CLI")
    service_namespace: Literal["sagemaker", "ecs", "ec2", "custom-resource"] = Field(
        description="whose scalable targets they are"
    )
    scalable_dimension: Literal[
        "sagemaker:inference-component:DesiredCopyCount",
        "sagemaker:variant:DesiredInstanceCount",
        "ecs:service:DesiredCount",
        "ec2:spot-fleet-request:TargetCapacity",
        "custom-resource:ResourceType:Property",
    ] = Field(description="what of them is scaled")
    resources: dict[Name, str] = Field(
        min_length=1,
        description="by pool the resource id, as in `service/llm/chat-70b` or `inference-component/chat-70b`",
    )
    actions: int = Field(
        default=24,
        ge=1,
        le=200,
        description="scheduled actions of a pool, always so many, so that each publication replaces those before it; "
        "neighbouring floors are merged to the higher",
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if not self.scalable_dimension.startswith(f"{self.service_namespace}:"):
            raise PydanticCustomError(
                "dimension_of_another_service",
                "scalable_dimension {dimension} is not one of {namespace}",
                {
                    "dimension": self.scalable_dimension,
                    "namespace": self.service_namespace,
                    "at": ("scalable_dimension",),
                    "hint": "write both as the AWS documentation does, as in ecs and ecs:service:DesiredCount",
                },
            )
        return self


class LivePublisher(PublisherEntry):
    """A publisher that changes something outside the output folder: with `mode: apply` alone."""

    value: Value = Field(
        default="floor",
        description="`floor`: the floor due, by `publish` and by the service; `decision`: what the overlay wants above "
        "it, by the service alone",
    )
    resync: Duration = Field(
        default=timedelta(minutes=5),
        description="how often the service looks again although nothing new is wanted: what was changed by hand or "
        "failed is found by then",
    )
    timeout: Duration = Field(default=timedelta(seconds=10), description="how long each request may take")
    attempts: int = Field(default=4, ge=1, le=20, description="how often a request is tried, with jittered waits")
    deadline: Duration = Field(
        default=timedelta(minutes=2),
        description="how long one run may take in all; what is not done by then has failed, and is tried again",
    )

    @field_validator("resync", "timeout", "deadline")
    @classmethod
    def _takes_time(cls, value: timedelta) -> timedelta:
        if value < timedelta(seconds=1):
            raise PydanticCustomError(
                "too_short_a_time",
                "{value} is less than a second",
                {"value": format_duration(value), "hint": "use at least 1s"},
            )
        return value

    @model_validator(mode="after")
    def _one_request_fits(self) -> Self:
        if self.deadline < self.timeout:
            raise PydanticCustomError(
                "deadline_too_short",
                "deadline {deadline} ends before one request of up to {timeout}",
                {
                    "deadline": format_duration(self.deadline),
                    "timeout": format_duration(self.timeout),
                    "at": ("deadline",),
                    "hint": "raise `deadline`, or shorten `timeout`",
                },
            )
        return self


class DynamoPublisher(LivePublisher):
    """The minimum endpoints of an NVIDIA Dynamo planner, by its control API: one entry for each planner."""

    kind: Literal["dynamo"] = Field(description="a planner's `PATCH /v1/min-endpoints`")
    url: str = Field(
        pattern=r"^https?://[^\s/?#]+$",
        description="the control API, as in http://127.0.0.1:9086: it listens on loopback alone and has no login, so "
        "run beside the planner or through a port-forward",
    )


class ObjectName(Section):
    """An object in a cluster."""

    namespace: str | None = Field(default=None, description="its namespace; that of the pool's `target` unless given")
    name: str | None = Field(default=None, description="its name; the pool's unless given")


class KubernetesPublisher(LivePublisher):
    """The minimum of KEDA's ScaledObject or of a HorizontalPodAutoscaler, by server-side apply of that one field."""

    kind: Literal["kubernetes"] = Field(description="an autoscaler object in a cluster")
    object: Literal["scaled_object", "hpa"] = Field(
        default="scaled_object",
        description="`spec.minReplicaCount` of a ScaledObject (KEDA), or `spec.minReplicas` of a "
        "HorizontalPodAutoscaler that KEDA did not make",
    )
    objects: dict[Name, ObjectName] = Field(
        default_factory=dict, description="by pool the object, where it is not the one that `publish` writes"
    )
    kubeconfig: str | None = Field(
        default=None,
        pattern=r"^[/~]",
        description="absolute path, or one that begins with `~`; the default one where only `context` is given, and "
        "the cluster that floorcast itself runs in where neither is",
    )
    context: str | None = Field(
        default=None, min_length=1, description="the context of the kubeconfig; its current one unless given"
    )
    field_manager: str = Field(
        default="floorcast",
        pattern=r"^[\x21-\x7e]{1,128}$",
        description="the name under which it holds the field; one for each floorcast that writes to a cluster",
    )

    def object_of(self, pool: str, target: Target) -> tuple[str, str]:
        """Namespace and name of a pool's object."""
        own = self.objects.get(pool, ObjectName())
        return own.namespace or target.namespace, own.name or pool


Publisher = Annotated[
    CsvPublisher | ParquetPublisher | CronPublisher | AwsPublisher | DynamoPublisher | KubernetesPublisher,
    Field(discriminator="kind"),
]

DYNAMO_FIELDS = {
    "unified": "min_endpoint",
    "prefill": "prefill_min_endpoint",
    "decode": "decode_min_endpoint",
}
"""The field of a planner's minimum by the role of a pool."""


def pools_of(config: Config, entry: PublisherEntry) -> tuple[str, ...]:
    """The pools that an entry carries, in the configuration's order."""
    return tuple(pool for pool in config.pools if entry.carries(pool))


def check_publishers(config: Config) -> None:
    """Publishers have names of their own and name pools that exist; a planner has one minimum of each kind."""
    labels = [entry.label for entry in config.publishers]
    for place, entry in enumerate(config.publishers):
        at = ("publishers", str(place))
        if labels.count(entry.label) > 1:
            raise PydanticCustomError(
                "duplicate_publisher",
                "two publishers are called {name}",
                {"name": entry.label, "at": at, "hint": "give each a `name` of its own"},
            )
        for pool in entry.pools:
            if pool not in config.pools:
                raise unknown_pool(config, pool, f"publisher {entry.label}", (*at, "pools"))
        if isinstance(entry, DynamoPublisher):
            _check_dynamo(config, entry, at)
        if isinstance(entry, AwsPublisher):
            _check_aws(config, entry, at)
    _check_objects(config)


def _check_aws(config: Config, entry: AwsPublisher, at: tuple[str, ...]) -> None:
    carried = pools_of(config, entry)
    odd = sorted(set(carried) ^ set(entry.resources))
    if odd:
        lacks = odd[0] in carried
        raise PydanticCustomError(
            "resources_unmatched",
            "publisher {name} carries {pool}, whose resource id is not given"
            if lacks
            else "publisher {name} gives a resource id of {pool}, which it does not carry",
            {
                "name": entry.label,
                "pool": odd[0],
                "at": (*at, "resources"),
                "hint": "give each pool that it carries a resource id, and no other; `pools` says which it carries",
            },
        )


def _check_dynamo(config: Config, entry: DynamoPublisher, at: tuple[str, ...]) -> None:
    holders: dict[str, str] = {}
    for pool in pools_of(config, entry):
        field = DYNAMO_FIELDS[config.pools[pool].role]
        if field in holders:
            raise PydanticCustomError(
                "two_pools_of_a_planner",
                "publisher {name} would set {field} of one planner for both {one} and {other}",
                {
                    "name": entry.label,
                    "field": field,
                    "one": holders[field],
                    "other": pool,
                    "at": at,
                    "hint": "name the pools of this planner under `pools`: one unified pool, or one prefill and one "
                    "decode pool; other planners get entries of their own",
                },
            )
        holders[field] = pool
    if "min_endpoint" in holders and len(holders) > 1:
        raise PydanticCustomError(
            "two_modes_of_a_planner",
            "publisher {name} carries {unified}, which is unified, beside pools that are not; a planner is one or the "
            "other",
            {
                "name": entry.label,
                "unified": holders["min_endpoint"],
                "at": at,
                "hint": "name the pools of this planner alone under `pools`",
            },
        )


def _check_objects(config: Config) -> None:
    """An object has one minimum: no two pools, and no two publishers, may set it."""
    holders: dict[tuple[str | None, ...], tuple[str, str]] = {}
    for place, entry in enumerate(config.publishers):
        if not isinstance(entry, KubernetesPublisher):
            continue
        at = ("publishers", str(place))
        pools = pools_of(config, entry)
        for pool in entry.objects:
            if pool not in pools:
                raise PydanticCustomError(
                    "object_of_no_pool",
                    "publisher {name} names the object of pool {pool}, which it does not carry",
                    {
                        "name": entry.label,
                        "pool": pool,
                        "at": (*at, "objects", pool),
                        "hint": f"use one of {sorted(pools)}",
                    },
                )
        for pool in pools:
            namespace, name = entry.object_of(pool, config.pools[pool].target)
            key = (entry.kubeconfig, entry.context, entry.object, namespace, name)
            if key in holders:
                publisher, other = holders[key]
                raise PydanticCustomError(
                    "two_floors_of_an_object",
                    "publisher {name} would set the minimum of {object} for {pool}, as {publisher} does for {other}",
                    {
                        "name": entry.label,
                        "object": f"{namespace}/{name}",
                        "pool": pool,
                        "publisher": publisher,
                        "other": other,
                        "at": at,
                        "hint": "name another object under `objects`, or fewer `pools`",
                    },
                )
            holders[key] = (entry.label, pool)
