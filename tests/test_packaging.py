"""The wheel is whole: in a bare environment outside the checkout it migrates a database and makes a plan."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(command: list[str | Path], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder` with nothing of this process's environment but what a login shell has."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(command, cwd=folder, env=kept | environment, capture_output=True, text=True, check=False)


def succeed(command: list[str | Path], folder: Path, **environment: str) -> str:
    """Standard output of a command that must exit with 0."""
    completed = run(command, folder, **environment)
    assert completed.returncode == 0, f"{command}\n{completed.stdout}\n{completed.stderr}"
    return completed.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    succeed([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a virtual environment with the wheel.

    The dependencies come from this environment through a .pth file: a path that is added so is searched, but its own
    .pth files are not read, so the editable install of the checkout stays invisible.
    """
    environment = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site_packages = Path(succeed([python, "-c", program], ROOT).strip())
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages / "dependencies.pth").write_text("\n".join(sorted(paths)) + "\n")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    succeed([*pip, "install", "--no-deps", "--no-index", "--ignore-installed", wheel], environment)
    return environment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder outside the checkout, with nothing in it but a workload file."""
    shutil.copy(ROOT / "docs" / "examples" / "chatbot.yaml", tmp_path / "chatbot.yaml")
    for name in referenced_files():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "docs" / "examples" / name, target)
    return tmp_path


def referenced_files() -> list[str]:
    """Other files in the folder of the examples, to which a workload file may point."""
    examples = ROOT / "docs" / "examples"
    return [
        path.relative_to(examples).as_posix()
        for path in examples.rglob("*")
        if path.is_file() and path.name != "chatbot.yaml"
    ]


def test_wheel_holds_data_migrations_contract_and_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder, prefix, pattern in (
        (ROOT / "migrations", "inferplan/storage/_migrations", "**/*.py"),
        (ROOT / "service" / "inferplan" / "catalog" / "data", "inferplan/catalog/data", "**/*.yaml"),
        (ROOT / "proto", "inferplan/_proto", "**/*.proto"),
        (ROOT / "third_party", "inferplan/_proto", "**/*.proto"),
    ):
        expected = {f"{prefix}/{path.relative_to(folder).as_posix()}" for path in folder.glob(pattern)}
        assert expected, f"{folder} is empty"
        assert expected <= names
    assert "inferplan/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "service/"))]


def test_two_builds_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    succeed([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], ROOT)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_installed_package_is_not_the_checkout(installed: Path, folder: Path) -> None:
    program = "import inferplan, buf.validate.validate_pb2 as v; print(inferplan.__file__); print(v.__file__)"
    for line in succeed([installed / "bin" / "python", "-c", program], folder).splitlines():
        assert Path(line).is_relative_to(installed)


def test_installed_package_migrates_checks_and_plans(installed: Path, folder: Path) -> None:
    program = installed / "bin" / "inferplan"
    database = {"INFERPLAN_DATABASE_URL": f"sqlite:///{folder / 'plans.db'}"}
    assert run([program, "db", "check"], folder, **database).returncode != 0, "there is no database yet"
    succeed([program, "db", "upgrade"], folder, **database)
    succeed([program, "db", "check"], folder, **database)
    arguments: list[str | Path] = ["plan", "-f", "chatbot.yaml", "--method", "textbook", "--format", "json"]
    plan = json.loads(succeed([program, *arguments], folder, **database))
    assert plan["input"]["method"] == "PLAN_METHOD_TEXTBOOK"
    stored = succeed([program, "plans", "list", "--format", "json"], folder, **database)
    assert plan["name"] in stored


def test_installed_version_is_the_project_s(installed: Path, folder: Path) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["path"]
    version = (ROOT / declared).read_text().split('__version__ = "')[1].split('"')[0]
    assert version in succeed([installed / "bin" / "inferplan", "version"], folder)


def test_locks_name_no_place_of_the_machine_that_made_them() -> None:
    for lock in sorted(ROOT.glob("requirements*.lock")):
        for line in lock.read_text().splitlines():
            assert "://" not in line, f"{lock.name}: {line}"
            assert not line.startswith(("-", "/")), f"{lock.name}: {line}"
