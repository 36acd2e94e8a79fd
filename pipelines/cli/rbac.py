"""`floorcast rbac`."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, project_of
from pipelines.cli.output import say, say_json

AccountOption = Annotated[str, typer.Option("--service-account", help="The service account of its pods.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", help="Its namespace.")]


def register(app: typer.Typer) -> None:
    @app.command("rbac")
    def command(
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        service_account: AccountOption = "floorcast",
        namespace: NamespaceOption = "floorcast",
        as_json: JsonOption = False,
    ) -> None:
        """Print what the configuration's Kubernetes publishers must be allowed, as Roles and RoleBindings.

        The objects are named. With `mode: advisory` they may be read; with `mode: apply` patched too. Nothing else is
        allowed.

        \b
        Example:
          floorcast rbac --config floorcast.yaml | kubectl apply -f -
        """
        import yaml

        from floorcast.errors import NotFoundError
        from floorcast.publisher import KubernetesPublisher
        from pipelines.publishers.kubernetes_rbac import roles

        project = project_of(config, data)
        manifests = [
            manifest
            for entry in project.config.publishers
            if isinstance(entry, KubernetesPublisher)
            for manifest in roles(entry, project.config, service_account=service_account, namespace=namespace)
        ]
        if not manifests:
            raise NotFoundError(
                "no publisher of `kind: kubernetes`",
                where=str(config),
                remedy="add one under `publishers`; nothing else in floorcast talks to a cluster",
            )
        if as_json:
            say_json({"apiVersion": "v1", "kind": "List", "items": manifests})
            return
        say(yaml.safe_dump_all(manifests, sort_keys=False, explicit_start=True).rstrip())
