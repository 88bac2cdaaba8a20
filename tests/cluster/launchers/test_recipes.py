"""What ships for launchers: the language of each accepts it, and Kubernetes' manifests do what they say."""

import ast
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import gpudoctor
from tests import needs
from tests.cluster.launchers.hosts import Hosts

RECIPES = Path(gpudoctor.__file__).parent / "app/recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.sh")), ids=lambda path: path.name)
def test_the_scripts_are_plain_shell(path: Path) -> None:
    subprocess.run([needs.program("sh"), "-n", str(path)], check=True)
    assert needs.shellcheck(path.read_text()) == ""


@pytest.mark.parametrize(
    ("recipe", "given", "key"),
    [
        ("slurm-job.sh", {}, "[0-9a-f]{32}"),
        ("slurm-job.sh", {"GPUDOCTOR_JOB_KEY": "ours"}, "ours"),
        ("torchrun.sh", {"GPUDOCTOR_JOB_KEY": "ours"}, "ours"),
    ],
)
def test_the_launcher_is_given_the_key_of_the_job(tmp_path: Path, recipe: str, given: dict[str, str], key: str) -> None:
    for name in ("srun", "torchrun"):
        launcher = tmp_path / name
        launcher.write_text("#!/bin/sh\nprintenv GPUDOCTOR_JOB_KEY\n")
        launcher.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NODES": "2", "RENDEZVOUS": "node1:29400", **given}
    started = [needs.program("sh"), str(RECIPES / recipe), "python", "train.py"]
    done = subprocess.run(started, env=env, check=True, capture_output=True, text=True)
    assert re.fullmatch(key, done.stdout.strip())


def test_what_the_ray_snippet_takes_from_gpudoctor_is_there() -> None:
    tree = ast.parse((RECIPES / "ray_train.py").read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_ours(node.value)}
    assert used == {"preflight"}
    assert callable(gpudoctor.preflight)


def _is_ours(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "gpudoctor"


MANIFESTS = sorted(RECIPES.glob("kubernetes-*.yaml"))
_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""What the value of a label may be."""
_BROKEN = {
    "missing": None,
    "misused": "exit 2",
    "undecided": "echo '0 found, 100 not judged, 0 passed'; exit 3",
    "traceback": "echo \"No module named 'gpudoctor'\" >&2; exit 1",
    "too slow": "exit 124",
}


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.full
@pytest.mark.parametrize("version", ["1.28", "1.32", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("path", MANIFESTS, ids=[path.name for path in MANIFESTS])
def test_each_document_is_valid_by_the_schemas_of_the_api(path: Path, version: str) -> None:
    for document in _documents(path):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """One node, in place of a pod that has all its GPUs."""
    with Hosts(["node1"]) as hosts:
        yield hosts


def _init_container(hosts: Hosts) -> int:
    (job,) = _documents(RECIPES / "kubernetes-init-container.yaml")
    return hosts.run("node1", job["spec"]["template"]["spec"]["initContainers"][0]["command"]).code


def _taints(hosts: Hosts) -> str:
    """What the DaemonSet's container asks of kubectl in its first round."""
    asked = hosts.folder / "asked"
    asked.write_text("")
    hosts.program("node1", "kubectl", f'echo "$@" >> {asked}')
    container = _documents(RECIPES / "kubernetes-daemonset.yaml")[-1]["spec"]["template"]["spec"]["containers"][0]
    shell, words, script = container["command"]
    once = re.sub(r"sleep \d+", "break", script)
    ran = hosts.run("node1", [shell, words, once], {"NODE_NAME": "worker-7"})
    assert ran.code == 0, ran.err
    return asked.read_text().strip()


def _labels(hosts: Hosts) -> dict[str, str]:
    """What Node Feature Discovery would read: the last line of each name counts, comments but one say nothing."""
    folder = hosts.folder / "features.d"
    folder.mkdir(exist_ok=True)
    container = _documents(RECIPES / "kubernetes-node-labels.yaml")[-1]["spec"]["template"]["spec"]["containers"][0]
    shell, words, script = container["command"]
    once = script.replace("sleep 300", "break").replace("/features.d/", f"{folder}/")
    ran = hosts.run("node1", [shell, words, once])
    assert ran.code == 0, ran.err
    assert [path.name for path in folder.iterdir()] == ["gpudoctor"]
    expiry, *lines = (folder / "gpudoctor").read_text().splitlines()
    expires = datetime.fromisoformat(expiry.removeprefix("# +expiry-time=").replace("Z", "+00:00"))
    assert timedelta(minutes=5) < expires - datetime.now(timezone.utc) <= timedelta(minutes=15)
    labels = dict(line.removeprefix("feature.node.kubernetes.io/gpudoctor.").split("=") for line in lines)
    assert all(_VALUE.fullmatch(value) for value in labels.values())
    return labels


@pytest.mark.full
def test_a_sound_node_starts_the_pod_and_keeps_its_taints(hosts: Hosts) -> None:
    hosts.becomes("node1", "hgx-h100")
    assert _init_container(hosts) == 0
    assert _taints(hosts) == ""
    assert _labels(hosts) == {"verdict": "sound"}


@pytest.mark.full
def test_a_sick_node_fails_the_pod_and_gets_a_taint(hosts: Hosts) -> None:
    hosts.becomes("node1", "ecc-uncorrected-h100")
    assert _init_container(hosts) == 1
    assert _taints(hosts) == "taint node worker-7 gpudoctor=gpu.ecc:NoSchedule --overwrite"
    assert _labels(hosts) == {"verdict": "broken", "finding": "gpu.ecc"}


@pytest.mark.full
@pytest.mark.parametrize("how", _BROKEN)
def test_where_gpudoctor_cannot_tell_nothing_is_done(hosts: Hosts, how: str) -> None:
    hosts.becomes("node1", "hgx-h100")
    hosts.program("node1", "gpudoctor", _BROKEN[how])
    assert _init_container(hosts) == 0
    assert _taints(hosts) == ""
    assert _labels(hosts) == {"verdict": "unknown"}


@pytest.mark.full
@pytest.mark.parametrize("path", MANIFESTS, ids=[path.name for path in MANIFESTS])
def test_their_shell_is_plain(path: Path) -> None:
    specs = [one["spec"] for one in _documents(path) if one["kind"] in {"DaemonSet", "Job", "CronJob"}]
    pods = [one.get("jobTemplate", {"spec": one})["spec"]["template"]["spec"] for one in specs]
    containers = [one for pod in pods for one in (*pod.get("initContainers", ()), *pod["containers"])]
    scripts = [one["command"][2] for one in containers if one["command"][:2] == ["sh", "-c"]]
    assert len(scripts) == 1
    assert needs.shellcheck(scripts[0]) == ""


@pytest.mark.full
def test_the_pod_that_labels_holds_no_token() -> None:
    kinds = [one["kind"] for one in _documents(RECIPES / "kubernetes-node-labels.yaml")]
    pod = _documents(RECIPES / "kubernetes-node-labels.yaml")[-1]["spec"]["template"]["spec"]
    assert (kinds, pod["automountServiceAccountToken"]) == (["Namespace", "DaemonSet"], False)
