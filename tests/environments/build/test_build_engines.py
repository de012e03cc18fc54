"""The objects of builds: input from tenants is never code, and credentials are kept apart."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kapsa.adapters.errors import Refused
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.testing.git_server import GitRepository, Link
from kapsa.environments.build.engines import BuildEngines
from kapsa.environments.build.source import SOURCE_SCRIPT
from kapsa.environments.ports import BuildRequest
from kapsa.environments.resources import Project
from kapsa.environments.settings import Settings

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ENGINES = BuildEngines(Settings())
SOURCE = GitCredentials(username="robot", password="git-password")
PUSH = RegistryCredentials(username="builder", password="push-password")
PULL = RegistryCredentials(username="reader", password="pull-password")


def request(
    *,
    url: str = "https://git.example.com/org/app",
    commit: str = COMMIT,
    insecure: bool = False,
    source: GitCredentials | None = None,
    push: RegistryCredentials | None = None,
    pull: RegistryCredentials | None = None,
    **build: Any,
) -> BuildRequest:
    project = Project.from_dict(
        {
            "metadata": {"name": "app", "namespace": "team"},
            "spec": {
                "source": {"repositoryUrl": url},
                "deployment": {"type": "image"},
                "registry": {"imageRepository": "org/app"},
                "build": build,
            },
        }
    )
    return BuildRequest(
        name="one-0123",
        namespace="kapsa-builds",
        project=project,
        commit=commit,
        image=ImageReference.parse(f"registry.example.com/org/app:{commit}"),
        insecure=insecure,
        source=source,
        push=push,
        pull=pull,
    )


def job(**options: Any) -> dict[str, Any]:
    made = ENGINES.objects(request(**options))[-1]
    assert made["kind"] == "Job"
    return made


def pod(**options: Any) -> dict[str, Any]:
    spec: dict[str, Any] = job(**options)["spec"]["template"]["spec"]
    return spec


# -- Jobs ------------------------------------------------------------------------------------------------------


def test_a_dockerfile_is_built_by_rootless_buildkit_by_default() -> None:
    spec = pod(dockerfile="docker/Dockerfile", context="app", args={"VERSION": "1"})
    _, container, _ = spec["initContainers"]
    assert container["securityContext"]["runAsUser"] == 1000
    assert "privileged" not in container["securityContext"]
    assert "--output=type=oci,tar=false,dest=/image" in container["args"]
    (push,) = spec["containers"]
    assert push["args"] == ["push", "/image", f"registry.example.com/org/app:{COMMIT}"]
    assert "--local=dockerfile=/workspace/source/app/docker" in container["args"]
    assert "--opt=build-arg:VERSION=1" in container["args"]
    assert ENGINES.engine(request(engine="kaniko").project) == "kaniko"
    spec = pod(engine="kaniko")
    assert {"--no-push", "--tar-path=/image/image.tar"} <= set(spec["initContainers"][1]["args"])
    assert spec["containers"][0]["args"][:2] == ["push", "/image/image.tar"]


def test_an_insecure_registry_is_one_to_push_to_and_one_to_pull_base_images_from() -> None:
    spec = pod(insecure=True)
    fetch, build, _ = spec["initContainers"]
    assert "--insecure" in spec["containers"][0]["args"]
    (config,) = (each["value"] for each in fetch["env"] if each["name"] == "BUILDKITD_CONFIG")
    assert config == '[registry."registry.example.com"]\nhttp = true\ninsecure = true'
    assert any("--config /workspace/buildkitd.toml" in each["value"] for each in build["env"])


@pytest.mark.parametrize("engine", ["buildkit", "kaniko"])
def test_the_credentials_to_push_are_out_of_reach_of_a_run_of_the_dockerfile(engine: str) -> None:
    secret, made = ENGINES.objects(request(source=SOURCE, push=PUSH, pull=PULL, engine=engine))
    assert secret["kind"] == "Secret"
    spec = made["spec"]["template"]["spec"]
    every = [*spec["initContainers"], *spec["containers"]]
    mounts = [{each["name"] for each in container["volumeMounts"]} for container in every]
    held = [mounted & {"git", "registry", "pull"} for mounted in mounts]
    assert held == [{"git"}, {"pull"}, set(), {"registry"}]
    (volume,) = (each["secret"] for each in spec["volumes"] if each["name"] == "pull")
    assert [each["key"] for each in volume["items"]] == ["pull.config.json"]
    assert "shareProcessNamespace" not in spec
    for password in (SOURCE.password, PUSH.password, PULL.password):
        assert password not in json.dumps(made), "credentials are in the Secret only"
    config = json.loads(base64.b64decode(secret["data"]["config.json"]))
    assert list(config["auths"]) == ["registry.example.com"]


@pytest.mark.parametrize("engine", ["buildkit", "kaniko"])
def test_what_a_build_has_made_is_checked_as_the_user_that_pushes_it(engine: str) -> None:
    spec = pod(engine=engine, push=PUSH)
    *_, built, checked = spec["initContainers"]
    assert (built["name"], checked["name"]) == ("build", "check")
    assert checked["volumeMounts"] == [{"name": "image", "mountPath": "/image", "readOnly": True}]
    assert checked["securityContext"] == spec["containers"][0]["securityContext"]


def check(image: Path) -> subprocess.CompletedProcess[str]:
    """Run the script of the container that checks a built image, in a directory of the test."""
    *_, container = pod()["initContainers"]
    variables = {"IMAGE": str(image), "PATH": os.environ["PATH"]}
    return subprocess.run(container["command"], env=variables, capture_output=True, text=True)


def test_an_image_with_a_link_to_the_credentials_is_not_pushed(tmp_path: Path) -> None:
    blobs = tmp_path / "image.tar" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    (blobs / "aa").write_text("a layer")
    assert check(tmp_path).returncode == 0
    (blobs / "bb").symlink_to("/docker/config.json")
    done = check(tmp_path)
    assert done.returncode == 1
    assert str(blobs / "bb") in done.stderr


def test_an_image_that_cannot_be_looked_at_is_not_pushed(tmp_path: Path) -> None:
    assert check(tmp_path / "missing").returncode != 0


@pytest.mark.parametrize(("engine", "unconfined"), [("buildkit", ["build"]), ("kaniko", [])])
def test_containers_are_confined_by_the_default_profile_where_their_engine_runs_with_it(
    engine: str, unconfined: list[str]
) -> None:
    spec = pod(engine=engine)
    every = [*spec["initContainers"], *spec["containers"]]
    default = spec["securityContext"]["seccompProfile"]["type"]
    profiles = {
        each["name"]: each["securityContext"].get("seccompProfile", {}).get("type", default) for each in every
    }
    assert [name for name, profile in profiles.items() if profile != "RuntimeDefault"] == unconfined


@pytest.mark.parametrize(("engine", "unconfined"), [("buildkit", ["build"]), ("kaniko", [])])
def test_apparmor_is_turned_off_where_the_engine_needs_that_and_otherwise_left_to_the_node(
    engine: str, unconfined: list[str]
) -> None:
    # Without a profile a container has that of the runtime. To name it would fail on a node without AppArmor.
    spec = pod(engine=engine)
    profiles = {
        each["name"]: each["securityContext"]["appArmorProfile"]
        for each in (*spec["initContainers"], *spec["containers"])
        if "appArmorProfile" in each["securityContext"]
    }
    assert profiles == {name: {"type": "Unconfined"} for name in unconfined}
    assert "appArmorProfile" not in spec["securityContext"]


def test_no_directory_of_a_build_is_setgid() -> None:
    assert "fsGroup" not in pod()["securityContext"]


def test_a_build_that_fails_is_not_retried_and_one_that_was_evicted_is() -> None:
    spec = job()["spec"]
    actions = [rule["action"] for rule in spec["podFailurePolicy"]["rules"]]
    assert actions == ["Ignore", "FailJob"]
    assert spec["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "build",
    [{"context": "../../etc"}, {"dockerfile": "a/../../../passwd"}, {"args": {"A=1 --opt": "x"}}],
    ids=["context", "dockerfile", "argument"],
)
def test_a_build_that_would_leave_its_repository_or_add_options_is_refused(build: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        ENGINES.objects(request(**build))


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "running"),
        ({"active": 1}, "running"),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "succeeded"),
        ({"conditions": [{"type": "Complete", "status": "False"}]}, "running"),
        ({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, "running"),
        ({"conditions": [{"type": "FailureTarget", "status": "True"}]}, "failed"),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]}, "failed"),
    ],
)
def test_the_conditions_of_a_job_are_its_progress(status: dict[str, Any], state: str) -> None:
    assert ENGINES.progress({"kind": "Job", "status": status}).state == state


def test_a_build_has_its_time_from_the_start_of_its_pod_however_long_it_waits_for_one() -> None:
    spec = job()["spec"]
    assert spec["template"]["spec"]["activeDeadlineSeconds"] == Settings().build_timeout
    assert spec["activeDeadlineSeconds"] >= Settings().build_timeout + 86_400
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    progress = ENGINES.progress({"kind": "Job", "status": {"conditions": [failed]}})
    assert progress.state == "expired"


def test_a_request_above_the_default_limit_raises_the_limit() -> None:
    _, build, _ = pod(resources={"requests": {"cpu": "3", "memory": "1Gi"}})["initContainers"]
    assert build["resources"] == {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "3"}}


@pytest.mark.parametrize("strategy", ["dockerfile", "buildpack"])
@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_a_build_that_asks_for_more_than_a_quarter_of_the_quota_is_refused(strategy: str, kind: str) -> None:
    with pytest.raises(Refused, match="9 cpu, but one build may have at most 8"):
        ENGINES.objects(request(strategy=strategy, resources={kind: {"cpu": "9"}}))


# -- the source ------------------------------------------------------------------------------------------------


def fetch(
    repository: GitRepository, commit: str, directory: Path, **build: Any
) -> subprocess.CompletedProcess[str]:
    """Run the script of a build's first container with the same variables, in directories of the test."""
    container = pod(url=repository.url, commit=commit, **build)["initContainers"][0]
    (directory / "home").mkdir()
    variables = {each["name"]: each["value"] for each in container["env"]}
    variables |= {
        "WORKSPACE": str(directory / "workspace"),
        "CREDENTIALS": str(directory / "credentials"),
        "HOME": str(directory / "home"),
        "PATH": os.environ["PATH"],
    }
    shell, options, script = container["command"]
    assert script == SOURCE_SCRIPT
    return subprocess.run([shell, options, script], env=variables, capture_output=True, text=True)


def test_the_source_of_a_build_is_exactly_its_commit(git_repository: GitRepository, tmp_path: Path) -> None:
    commit = git_repository.commit({"Dockerfile": "FROM scratch\n"})
    git_repository.commit({"Dockerfile": "FROM other\n"})
    done = fetch(git_repository, commit, tmp_path)
    assert done.returncode == 0, done.stderr
    source = tmp_path / "workspace" / "source"
    assert (source / "Dockerfile").read_text() == "FROM scratch\n"
    assert not (source / ".git").exists()


def test_the_source_of_a_pull_request_is_fetched(git_repository: GitRepository, tmp_path: Path) -> None:
    commit = git_repository.pull_request(7, {"Dockerfile": "FROM fork\n"})
    done = fetch(git_repository, commit, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "workspace" / "source" / "Dockerfile").read_text() == "FROM fork\n"


def test_a_dockerfile_that_is_a_link_out_of_the_repository_is_refused(
    git_repository: GitRepository, tmp_path: Path
) -> None:
    commit = git_repository.commit({"Dockerfile": Link("/etc/passwd")})
    done = fetch(git_repository, commit, tmp_path)
    assert done.returncode == 1
    assert "leaves the repository" in done.stderr


def test_a_missing_dockerfile_is_reported(git_repository: GitRepository, tmp_path: Path) -> None:
    commit = git_repository.commit({"README.md": "Nothing to build.\n"})
    done = fetch(git_repository, commit, tmp_path)
    assert done.returncode == 1
    assert f"commit {commit} has no ./Dockerfile" in done.stderr


# -- kpack -----------------------------------------------------------------------------------------------------


def test_buildpacks_are_built_by_a_kpack_image_of_exactly_the_commit() -> None:
    (image,) = ENGINES.objects(
        request(strategy="buildpack", context="app", env=[{"name": "A", "value": "1"}])
    )
    assert (image["apiVersion"], image["kind"]) == ("kpack.io/v1alpha2", "Image")
    assert image["spec"]["tag"] == f"registry.example.com/org/app:{COMMIT}"
    assert image["spec"]["source"] == {
        "git": {"url": "https://git.example.com/org/app", "revision": COMMIT},
        "subPath": "app",
    }
    assert image["spec"]["builder"] == {"kind": "ClusterBuilder", "name": "paketobuildpacks-builder-base"}
    assert image["spec"]["serviceAccountName"] == "kapsa-build"
    assert image["spec"]["build"]["env"] == [{"name": "A", "value": "1"}]


def test_kpack_gets_credentials_by_a_service_account_of_the_build() -> None:
    git, registry, account, image = ENGINES.objects(request(strategy="buildpack", source=SOURCE, push=PUSH))
    assert git["metadata"]["annotations"] == {"kpack.io/git": "https://git.example.com"}
    assert registry["type"] == "kubernetes.io/dockerconfigjson"
    names = [git["metadata"]["name"], registry["metadata"]["name"]]
    assert [each["name"] for each in account["secrets"]] == names
    assert account["automountServiceAccountToken"] is False
    assert image["spec"]["serviceAccountName"] == account["metadata"]["name"]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "running"),
        ({"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}, "running"),
        ({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "Unknown"}]}, "running"),
        (
            {
                "observedGeneration": 2,
                "conditions": [{"type": "Ready", "status": "False", "reason": "BuilderNotReady"}],
            },
            "running",
        ),
        ({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "False"}]}, "failed"),
        ({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]}, "succeeded"),
    ],
)
def test_a_kpack_images_status_counts_only_for_its_current_generation(
    status: dict[str, Any], state: str
) -> None:
    assert ENGINES.progress({"kind": "Image", "metadata": {"generation": 2}, "status": status}).state == state
