"""What every image promises, read from its Dockerfile."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.unit.deploy.dockerfile import Stage, read_dockerfile

REPOSITORY = Path(__file__).parents[3]
DOCKER = REPOSITORY / "deploy" / "docker"
IMAGES = sorted(DOCKER.glob("*.Dockerfile"))


def stages(path: Path) -> tuple[Stage, Stage]:
    build, final = read_dockerfile(path)
    return build, final


def test_there_are_three_images() -> None:
    assert [path.name for path in IMAGES] == ["daemon.Dockerfile", "runner-cuda.Dockerfile", "runner.Dockerfile"]


@pytest.fixture(params=IMAGES, ids=lambda path: path.stem)
def image(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_the_final_stage_runs_nothing_and_copies_only_what_the_build_stage_made(image: Path) -> None:
    build, final = stages(image)
    assert final.all_of("RUN") == []
    assert {copy.flags.get("from") for copy in final.all_of("COPY")} == {build.name} == {"build"}


def test_both_stages_stand_on_the_same_slim_python_of_a_named_patch_version(image: Path) -> None:
    build, final = stages(image)
    assert build.image == final.image
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", final.image)


def test_the_user_is_a_number_and_not_root(image: Path) -> None:
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", stages(image)[1].only("USER").text)


def test_the_user_owns_the_volumes_and_nothing_else(image: Path) -> None:
    _, final = stages(image)
    owned = {copy.words[-1]: copy.flags["chown"] for copy in final.all_of("COPY") if "chown" in copy.flags}
    assert set(owned) == set(final.only("VOLUME").words)
    assert set(owned.values()) == {final.only("USER").text}


def test_what_the_command_names_lies_in_a_volume(image: Path) -> None:
    _, final = stages(image)
    paths = [match[0] for word in final.only("CMD").words for match in re.finditer(r"/[\w./-]+", word)]
    assert paths
    for path in paths:
        assert any(path.startswith(f"{volume}/") for volume in final.only("VOLUME").words), path


def test_the_program_is_started_without_a_shell_so_that_sigterm_reaches_it(image: Path) -> None:
    _, final = stages(image)
    assert final.only("ENTRYPOINT").text.startswith("[")
    assert final.only("CMD").text.startswith("[")


def test_nobody_but_the_platform_asks_for_its_health(image: Path) -> None:
    assert not re.search(r"^HEALTHCHECK", image.read_text(), re.MULTILINE)


def test_its_label_has_the_version_of_the_package(image: Path) -> None:
    labels = stages(image)[1].only("LABEL").pairs
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert f":{version}" in image.read_text()


def test_every_copied_path_exists_and_gets_past_the_ignore_file(image: Path) -> None:
    build, _ = stages(image)
    first, *rest = [
        line
        for line in image.with_name(image.name + ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert first == "*"
    let_through = [line[1:] for line in rest if line.startswith("!")]
    copied = [source for copy in build.all_of("COPY") for source in copy.words[:-1]]
    for source in copied:
        assert (REPOSITORY / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in let_through), source
    assert sorted(let_through) == sorted(copied)


def test_packages_are_installed_by_the_versions_in_constraints_txt(image: Path) -> None:
    installs = [run.text for run in stages(image)[0].all_of("RUN") if " install " in run.text]
    assert installs
    assert all(text.count(" install ") == text.count("--constraint constraints.txt") for text in installs)


def test_constraints_txt_names_each_package_once_with_one_exact_version() -> None:
    lines = [line for line in (DOCKER / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.]*", line) for line in lines)
    names = [re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines]
    assert len(set(names)) == len(names)


def test_cudas_libraries_are_looked_for_below_the_python_of_the_base_image() -> None:
    _, final = stages(DOCKER / "runner-cuda.Dockerfile")
    version = final.image.removeprefix("python:").rsplit(".", 1)[0]
    folders = final.only("ENV").pairs["LD_LIBRARY_PATH"].split(":")
    assert all(folder.startswith(f"/opt/constraintd/lib/python{version}/site-packages/nvidia/") for folder in folders)


def test_cudas_packages_are_of_the_version_that_onnx_runtime_is_built_for() -> None:
    lines = (DOCKER / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    # What onnxruntime-gpu[cuda,cudnn] of this version asks for; another version may want another CUDA.
    assert pinned["onnxruntime-gpu"] == "1.31.1"
    assert {"nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cufft", "nvidia-curand"} <= set(pinned)
    assert pinned["nvidia-cuda-runtime"].startswith("13.")
    assert pinned["nvidia-cudnn-cu13"].startswith("9.")


def test_an_instruction_outside_of_the_subset_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "odd.Dockerfile"
    path.write_text("FROM python:3.11.13-slim-bookworm\n\nADD https://example.org/x /x\n")
    with pytest.raises(ValueError, match=r"odd\.Dockerfile:3: ADD"):
        read_dockerfile(path)
