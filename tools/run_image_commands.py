"""Run the RUN commands of the Dockerfile's build stage in a temporary folder, then the program that they installed.

COPY and WORKDIR are followed; the absolute paths of the image are moved below the temporary folder. It needs no
container engine; what it cannot show is the base image and the user.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGE_PATHS = re.compile(r"(?<![\w./])/(?=(?:build|opt|var)\b)")


def build_stage(dockerfile: str) -> list[tuple[str, str]]:
    """Instructions of the first stage as (keyword, rest), with continuation lines joined and comments left out."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    instructions = [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]
    stage: list[tuple[str, str]] = []
    for keyword, rest in instructions[1:]:
        if keyword == "FROM":
            return stage
        stage.append((keyword, rest))
    return stage


def copy(sources: list[str], destination: Path) -> None:
    """Copy files into a folder, or one folder onto a path, as COPY does; without caches, as .dockerignore says."""
    for source in sources:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, destination, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy2(ROOT / source, destination)


def run_stage(image: Path) -> None:
    """Follow the build stage below the folder `image`; a command that fails ends the program with its status."""
    work_directory = image
    for keyword, rest in build_stage((ROOT / "Dockerfile").read_text()):
        print(f"{keyword} {rest}", flush=True)
        if keyword == "WORKDIR":
            work_directory = image / rest.lstrip("/")
            work_directory.mkdir(parents=True)
        elif keyword == "COPY":
            *sources, destination = rest.split()
            copy(sources, work_directory / destination)
        elif keyword == "RUN":
            command = IMAGE_PATHS.sub(f"{image}/", rest)
            completed = subprocess.run(["/bin/sh", "-c", command], cwd=work_directory, check=False)
            if completed.returncode != 0:
                sys.exit(completed.returncode)
        else:
            sys.exit(f"{keyword} is not known to this program: add it")


def main() -> None:
    """Command line entry point."""
    with tempfile.TemporaryDirectory(prefix="inferplan-image-") as folder:
        image = Path(folder)
        run_stage(image)
        program = image / "opt" / "inferplan" / "bin" / "inferplan"
        completed = subprocess.run([program, "version"], cwd=image, check=False)
    sys.exit(completed.returncode)


if __name__ == "__main__":
    main()
