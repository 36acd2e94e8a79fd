"""`floorcast rbac`."""

from __future__ import annotations

import json
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from floorcast.errors import NotFoundError
from pipelines.cli.main import app

EXAMPLE = Path(__file__).parents[3] / "deploy" / "kubernetes" / "floorcast.yaml"


@pytest.fixture
def config(tmp_path):
    def write(**changes):
        document = yaml.safe_load(EXAMPLE.read_text()) | changes
        path = tmp_path / "floorcast.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


@pytest.mark.parametrize(("mode", "verbs"), [("advisory", ["get"]), ("apply", ["get", "patch"])])
def test_it_prints_the_rights_that_the_mode_needs_for_the_account_named(config, mode, verbs):
    options = ["--service-account", "floors", "--namespace", "ops"]
    printed = CliRunner().invoke(app, ["rbac", "--config", config(mode=mode), *options])
    assert printed.exit_code == 0, printed.output
    role, binding = yaml.safe_load_all(printed.stdout)
    for manifest in (role, binding):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    assert role["rules"] == [
        {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "resourceNames": ["chat-70b"], "verbs": verbs}
    ]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "llm"
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "floors", "namespace": "ops"}]


def test_each_publisher_has_a_role_of_its_own(config):
    publishers = [
        {"kind": "kubernetes", "name": "keda", "object": "scaled_object"},
        {"kind": "kubernetes", "name": "plain", "object": "hpa"},
    ]
    printed = CliRunner().invoke(app, ["rbac", "--config", config(publishers=publishers)])
    names = [one["metadata"]["name"] for one in yaml.safe_load_all(printed.stdout)]
    assert names == ["floorcast-keda", "floorcast-keda", "floorcast-plain", "floorcast-plain"]


def test_as_json_it_is_one_list_that_kubectl_takes(config):
    words = ["rbac", "--config", config()]
    said = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert (said["apiVersion"], said["kind"]) == ("v1", "List")
    assert said["items"] == list(yaml.safe_load_all(CliRunner().invoke(app, words).stdout))


def test_without_such_a_publisher_there_is_nothing_to_allow(config):
    done = CliRunner().invoke(app, ["rbac", "--config", config(publishers=[{"kind": "csv"}])])
    assert isinstance(done.exception, NotFoundError)
    assert "no publisher of `kind: kubernetes`" in str(done.exception)
