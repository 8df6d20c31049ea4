"""The package as a wheel: all it needs is in it, and is found from any folder."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    *(path for kind in ("py", "js", "css", "woff2", "txt") for path in ROOT.glob(f"workbench/**/*.{kind}")),
    *(path for kind in ("json", "jsonl", "safetensors", "yaml") for path in ROOT.glob(f"assets/**/*.{kind}")),
    *ROOT.glob("assets/gsm8k/LICENSE"),
    *ROOT.glob("examples/*.py"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools would put into it whatever an earlier build left behind."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("workbench", "assets", "examples"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "requirements.txt", "README.md"):
        shutil.copy(ROOT / name, folder / "source")
    pip(["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source")])
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed in it; what it depends on is this interpreter's."""
    site = tmp_path_factory.mktemp("site")
    pip(["install", "--no-deps", "--no-compile", "--target", str(site), str(wheel)])
    return site


def pip(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_wheel_holds_every_file_that_the_package_reads(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    paths = (path.relative_to(ROOT).as_posix() for path in FILES)
    wanted = {
        re.sub("^examples/", "workbench/programs/", re.sub("^assets/", "workbench/shipped/", path)) for path in paths
    }
    assert {"workbench/shipped/tiny/model.safetensors", "workbench/ui/assets/page.css"} <= wanted
    recipes = {
        f"workbench/shipped/{name}/{file}.py" for name in ("tiny", "tiny_tools") for file in ("build", "teacher")
    }
    assert sorted(wanted - inside - recipes) == []


def test_a_wheel_depends_on_ranges_that_hold_what_was_tested(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    metadata = HeaderParser().parsestr(archive.read(name).decode())
    needed = {
        one.name.lower(): one.specifier
        for one in map(Requirement, metadata.get_all("Requires-Dist", []))
        if not one.marker
    }
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    assert tested.keys() == needed.keys()
    assert [name for name, version in tested.items() if version not in needed[name]] == []


def test_every_package_that_is_imported_is_declared() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    declared = {line.partition("==")[0].lower() for line in lines if not line.startswith("#")}
    modules = {*ROOT.glob("workbench/**/*.py")} - {*ROOT.glob("workbench/engines/exported/*.py")}  # run elsewhere
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    packages = packages_distributions()
    imported = {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, "workbench"}
    optional = {"tinker", "trackio", "wandb", "IPython"}  # an extra, trackers that a run asks for, JupyterLab's own
    missing = [name for name in imported - optional if not declared & {d.lower() for d in packages.get(name, [name])}]
    assert missing == []


SAMPLED = """
import workbench as wb

policy, task = wb.load_policy("tiny", device="cpu"), wb.load_task("chain-arithmetic")
group = wb.sample_group(policy, task[0], num_generations=2, max_completion_length=48, seed=0)
sampled = [list(rollout.token_ids) for rollout in group.rollouts]
"""
NEWEST = """
import pandas, transformers
from workbench.training.trainer import ProcessGRPOTrainer

print((transformers.__version__, sampled))
"""


def test_the_newest_libraries_that_the_ranges_allow_sample_the_same_group(site: Path, tmp_path: Path) -> None:
    """Newer than the pinned ones where the registry has such: the plain decoder reads the layers of transformers."""
    ranges = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    newest = [str(one) for one in map(Requirement, ranges) if one.name in ("transformers", "pandas")]
    pip(["install", "--no-deps", "--no-compile", "--only-binary=:all:", "--target", str(tmp_path), *newest])
    (pinned,) = re.findall(r"^transformers==(.+)$", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(site)])}
    command = [sys.executable, "-W", "ignore", "-c", SAMPLED + NEWEST]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    here: dict[str, Any] = {}
    exec(SAMPLED, here)
    version, sampled = ast.literal_eval(done.stdout)
    assert Version(version) >= Version(pinned)
    assert sampled == here["sampled"]


def test_an_installed_package_finds_what_comes_with_it_from_any_folder(site: Path, tmp_path: Path) -> None:
    code = (
        "from workbench import assets, cli\n"
        "assert len(assets.recipes()) > 3\n"
        "assert (assets.EXAMPLES / 'phantom.py').is_file()\n"
        "cli.main(['score', '--group', str(assets.FIRST_GROUP), '--json'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rollouts"]) == 8
    [commands] = site.glob("*.dist-info/entry_points.txt")
    assert "workbench = workbench.cli:main" in commands.read_text()


def test_the_image_installs_as_the_readme_says_and_holds_what_the_app_reads() -> None:
    install = "pip install -r requirements.txt"
    assert f"RUN {install}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f"{install} && python app.py" in (ROOT / "README.md").read_text(encoding="utf-8")
    left_out = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {"app.py", "assets", "workbench", "requirements.txt"}.isdisjoint(left_out)
