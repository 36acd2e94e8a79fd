"""deploy/kubernetes: valid, consistent with itself, with its configuration, with the command line and the service."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import typer
import yaml
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.project import load_project
from pipelines.service.guard import OPEN

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
NOT_MANIFESTS = {"kustomization.yaml", "floorcast.yaml"}
RESTRICTED = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


class _Strict(yaml.SafeLoader):
    """Refuses what YAML forbids and PyYAML lets pass: a key given twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key twice{node.start_mark}"
        return super().construct_mapping(node, deep)


def _documents(path):
    return [one for one in yaml.load_all(path.read_text(), Loader=_Strict) if one]


FILES = sorted(path.name for path in FOLDER.glob("*.yaml") if path.name not in NOT_MANIFESTS)
KUSTOMIZATION = _documents(FOLDER / "kustomization.yaml")[0]
MANIFESTS = [one for name in FILES for one in _documents(FOLDER / name)]


def _one(kind, name="floorcast"):
    [found] = [one for one in MANIFESTS if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


DEPLOYMENT = _one("Deployment")
CRON_JOB = _one("CronJob", "floorcast-cycle")
PODS = {"service": DEPLOYMENT["spec"]["template"], "cycle": CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]}


@pytest.fixture(scope="module")
def project():
    return load_project(FOLDER / "floorcast.yaml", environment={})


def _mounts(pod):
    """By path the claim, config map, secret or emptyDir that is mounted there."""
    [container] = pod["spec"]["containers"]
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} == set(volumes)
    return {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}


def _claim(pod, path):
    """The claim that a path is on."""
    mounts = _mounts(pod)
    on = max((mount for mount in mounts if Path(path).is_relative_to(mount)), key=len, default=None)
    return on and mounts[on].get("persistentVolumeClaim", {}).get("claimName")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
def test_manifests_are_valid_for_kubernetes(name, version):
    for manifest in _documents(FOLDER / name):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_kustomize_takes_every_manifest_and_names_every_image():
    assert sorted(KUSTOMIZATION["resources"]) == FILES
    images = {one["name"] for one in KUSTOMIZATION["images"]}
    assert {pod["spec"]["containers"][0]["image"] for pod in PODS.values()} == images
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert KUSTOMIZATION["images"][0]["newTag"] == version
    [generated] = KUSTOMIZATION["configMapGenerator"]
    assert generated["files"] == ["floorcast.yaml"]
    assert KUSTOMIZATION["generatorOptions"]["disableNameSuffixHash"] is True


def test_everything_is_in_one_namespace_but_the_rights_to_the_objects():
    elsewhere = {one["kind"] for one in MANIFESTS if one["metadata"].get("namespace") != "floorcast"}
    assert elsewhere == {"Namespace", "Role", "RoleBinding"}


def test_what_pods_mount_exists():
    claims = {one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "PersistentVolumeClaim"}
    made = {"configMap": {"floorcast-config"}, "secret": {"floorcast-token"}, "persistentVolumeClaim": claims}
    names = {"configMap": "name", "secret": "secretName", "persistentVolumeClaim": "claimName"}
    used = set()
    for pod in PODS.values():
        for volume in pod["spec"]["volumes"]:
            for kind, name in names.items():
                if kind in volume:
                    assert volume[kind][name] in made[kind]
                    used.add(volume[kind][name])
        assert pod["spec"]["serviceAccountName"] == _one("ServiceAccount")["metadata"]["name"]
    assert claims <= used


def test_the_database_is_the_cycles_alone_and_only_what_is_published_is_shared(project):
    """DuckDB lets one process open its file, and one cycle runs at a time."""
    config = project.config
    assert _claim(PODS["cycle"], config.store.path) == "floorcast-store"
    assert _claim(PODS["service"], config.store.path) is None
    assert CRON_JOB["spec"]["concurrencyPolicy"] == "Forbid"
    assert {_claim(pod, config.output.dir) for pod in PODS.values()} == {"floorcast-published"}
    assert _claim(PODS["service"], config.service.state_dir) == "floorcast-state"
    claims = [
        {one.get("persistentVolumeClaim", {}).get("claimName") for one in _mounts(p).values()} for p in PODS.values()
    ]
    assert (claims[0] & claims[1]) - {None} == {"floorcast-published"}


def test_one_process_decides_and_ends_before_the_next_begins(project):
    spec = DEPLOYMENT["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > project.config.service.timeout.total_seconds()


def test_the_schedule_is_the_step_and_the_publication_interval(project):
    minutes = int(project.config.step.total_seconds() // 60)
    assert CRON_JOB["spec"]["schedule"] == f"*/{minutes} * * * *"
    assert CRON_JOB["spec"]["timeZone"] == "Etc/UTC"
    assert project.config.publication_interval == project.config.step
    assert CRON_JOB["spec"]["startingDeadlineSeconds"] < project.config.step.total_seconds()


@pytest.mark.parametrize("name", PODS)
def test_pods_are_selected_and_share_a_node(name):
    """A pod that matches its own affinity may be the first on any node."""
    pod = PODS[name]
    labels = pod["metadata"]["labels"].items()
    [term] = pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"].items() <= labels
    assert _one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels
    chosen = [_one("Service")["spec"]["selector"], DEPLOYMENT["spec"]["selector"]["matchLabels"]]
    assert [one.items() <= labels for one in chosen] == [name == "service"] * 2


@pytest.mark.parametrize("name", PODS)
def test_pods_keep_to_the_restricted_profile_that_the_namespace_enforces(name):
    spec = PODS[name]["spec"]
    [container] = spec["containers"]
    assert _one("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert RESTRICTED.items() <= spec["securityContext"].items()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert [spec["securityContext"][key] for key in ("runAsUser", "runAsGroup")] == [int(one) for one in user.groups()]


def test_the_service_listens_where_it_is_asked_and_with_a_token(project):
    service = project.config.service
    pod = PODS["service"]["spec"]
    [port] = pod["containers"][0]["ports"]
    assert (port["name"], port["containerPort"]) == ("http", service.port)
    [served] = _one("Service")["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (service.port, "http")
    [ingress] = _one("NetworkPolicy")["spec"]["ingress"]
    assert ingress["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert service.host == "0.0.0.0"
    folder, key = str(Path(service.token_file).parent), Path(service.token_file).name
    assert _mounts(PODS["service"])[folder]["secret"]["secretName"] == "floorcast-token"
    assert f"--from-literal={key}=" in (ROOT / "docs" / "kubernetes.md").read_text()


def test_probes_ask_what_is_answered_without_a_token():
    container = PODS["service"]["spec"]["containers"][0]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert set(paths.values()) <= OPEN
    # A service that is not ready holds the last floors: whoever asks must still reach it.
    assert _one("Service")["spec"]["publishNotReadyAddresses"] is True


def _commands():
    """The arguments of every `floorcast` in the manifests, their comments, the configuration and the Dockerfile."""
    [service] = PODS["service"]["spec"]["containers"]
    yield service["args"]
    texts = [PODS["cycle"]["spec"]["containers"][0]["command"][-1]]
    texts += [
        line for path in FOLDER.glob("*.yaml") for line in re.findall(r"^# +(floorcast .*)$", path.read_text(), re.M)
    ]
    for text in texts:
        for found in re.findall(r"\bfloorcast ([a-z]+ [^;>|]*)", text):
            yield shlex.split(found)


def test_every_command_and_option_exists():
    group = typer.main.get_command(app)
    commands = list(_commands())
    assert {command[0] for command in commands} == {"serve", "cycle", "check", "rbac"}
    for name, *arguments in commands:
        command = group.get_command(None, name)
        assert command is not None, name
        command.make_context(name, list(arguments))


def test_a_cycle_whose_floors_are_short_is_no_failed_job(tmp_path):
    """Exit codes 9 and 10, and no other, count as done."""
    *shell, script = PODS["cycle"]["spec"]["containers"][0]["command"]
    for code, wanted in ((0, 0), (9, 0), (10, 0), (8, 8), (6, 6)):
        program = tmp_path / "floorcast"
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
        done = subprocess.run([*shell, script], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
        assert done.returncode == wanted


def test_the_rights_are_those_that_the_configuration_needs():
    printed = CliRunner().invoke(app, ["rbac", "--config", str(FOLDER / "floorcast.yaml")])
    assert printed.exit_code == 0, printed.output
    assert (FOLDER / "rbac.yaml").read_text() == printed.stdout, (
        "if the change is meant: floorcast rbac --config deploy/kubernetes/floorcast.yaml > deploy/kubernetes/rbac.yaml"
    )
    roles = [one for one in MANIFESTS if one["kind"] == "Role"]
    assert [rule["verbs"] for role in roles for rule in role["rules"]] == [["get"]]
    [binding] = [one for one in MANIFESTS if one["kind"] == "RoleBinding"]
    account = _one("ServiceAccount")["metadata"]
    assert [(one["name"], one["namespace"]) for one in binding["subjects"]] == [(account["name"], account["namespace"])]


def test_the_image_is_built_from_what_the_wheel_holds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= kept
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= kept
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert set(re.findall(r"^FROM python:([\d.]+)-slim", dockerfile, re.M)) == {"3.11"}
    assert 'ENTRYPOINT ["floorcast"]' in dockerfile


def test_the_images_versions_are_those_of_the_lock():
    """What its `sed` makes of the lock is a version for each package, with its hashes taken off."""
    [script] = re.findall(r"RUN (sed .*requirements\.lock) >", (ROOT / "Dockerfile").read_text())
    lock = (ROOT / "requirements.lock").read_text()
    made = subprocess.run(["/bin/sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pins = [line for line in made.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert pins == re.findall(r"^(\S+==\S+(?: ; [^\\\n]*\S)?) \\$", lock, re.M)
    assert len(pins) > 50
