"""An installed copy runs away from the checkout: all that it reads ships in the wheel."""

import os
import re
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

PROBE = """
import pathlib, sys
import pipeline
from pipeline import resources
from pipeline.config import load_config
from pipeline.wire.registry import registry

checkout = pathlib.Path(sys.argv[1])
assert checkout not in pathlib.Path(pipeline.__file__).parents, pipeline.__file__
folders = resources.schemas_folder(), resources.conf_folder(), resources.local_services_folder()
for folder in folders:
    assert checkout not in folder.parents, folder
    assert any(folder.iterdir()), folder
registry()
assert (resources.local_services_folder() / "pom.xml").is_file()
print(load_config(["environment=cartpole", "algorithm=dqn"]).environment.id)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the build back end of this environment: nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(CHECKOUT)], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a fresh environment with the wheel, which sees this one's dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    binaries = folder / ("Scripts" if os.name == "nt" else "bin")
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(output([str(binaries / "python"), "-c", purelib], folder).strip())
    # Of this environment only the packages: its path files would bring the checkout back.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "install"]
    options = ["--quiet", "--no-deps", "--no-index", "--force-reinstall"]
    subprocess.run([*pip, *options, str(wheel)], check=True, cwd=folder)
    return binaries


def output(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_data_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("schemas/chunk.avsc", "conf/config.yaml", "deploy/local/pom.xml"):
        assert f"pipeline/_data/{name}" in names
    assert "pipeline/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "conf/"))]


def test_an_installed_copy_finds_schemas_and_settings(installed: Path, tmp_path: Path) -> None:
    said = output([str(installed / "python"), "-c", PROBE, str(CHECKOUT)], tmp_path)
    assert said.strip() == "CartPole-v1"


def test_the_console_command_of_an_installed_copy_runs_services(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "pipeline"), "services"]
    said = output([*command, "up", "services=embedded", "services.detach=true"], tmp_path)
    try:
        assert said.count("127.0.0.1:") == 2
        assert "supervised by process" in output([*command, "status"], tmp_path)
    finally:
        output([*command, "down"], tmp_path)


def test_the_source_distribution_holds_docs_and_examples(tmp_path: Path):
    """Links of the README lead somewhere for who has only that."""
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*build, str(CHECKOUT)], check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    links = re.findall(r"\]\(([^)#:]+)\)", (CHECKOUT / "README.md").read_text())
    assert len(links) > 3
    for link in links:
        assert link in names or any(name.startswith(f"{link.rstrip('/')}/") for name in names), link
