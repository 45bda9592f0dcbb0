"""Generate the contract's Python stubs: `python tools/generate_stubs.py [OUTPUT_DIRECTORY]`, by default into service/.

Runs offline with the locked grpcio-tools and mypy-protobuf, so that the same inputs always give the same bytes;
tests/test_contract_stubs.py compares a fresh run with the committed files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO_ROOT = ROOT / "proto"
THIRD_PARTY_ROOT = ROOT / "third_party"
DEFAULT_OUTPUT = ROOT / "service"

# No distribution on PyPI ships this module for the google.protobuf runtime (protovalidate 2 brings its own runtime),
# and every stub with a constraint imports it; google.api and google.rpc come with googleapis-common-protos.
GENERATED_THIRD_PARTY = ("buf/validate/validate.proto",)


def contract_files() -> list[str]:
    """The contract's own files, relative to the proto root, in a fixed order."""
    return sorted(path.relative_to(PROTO_ROOT).as_posix() for path in PROTO_ROOT.rglob("*.proto"))


def stub_paths(output: Path) -> list[Path]:
    """Every generated file below an output folder, relative to it, in a fixed order."""
    found: list[Path] = []
    for package in ("inferplan/v1", "buf/validate"):
        for pattern in ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi"):
            found.extend(path.relative_to(output) for path in (output / package).glob(pattern))
    return sorted(found)


def _run_protoc(files: list[str], options: list[str]) -> None:
    includes = [f"-I{PROTO_ROOT}", f"-I{THIRD_PARTY_ROOT}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *includes, *options, *files]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        sys.exit(f"protoc failed:\n{completed.stderr}")


def _plugin(name: str) -> str:
    return f"--plugin={name}={Path(sysconfig.get_path('scripts')) / name}"


def generate(output: Path) -> list[Path]:
    """Write all stubs below `output`, delete those whose .proto is gone; returns the written paths, relative to it."""
    output.mkdir(parents=True, exist_ok=True)
    for stale in stub_paths(output):
        (output / stale).unlink()
    files = contract_files()
    # Only files of services have gRPC code: protoc would write an empty module for each of the others.
    services = [name for name in files if name.endswith("_service.proto")]
    _run_protoc(
        [*files, *GENERATED_THIRD_PARTY],
        [_plugin("protoc-gen-mypy"), f"--python_out={output}", f"--mypy_out={output}"],
    )
    if services:
        _run_protoc(
            services,
            [
                _plugin("protoc-gen-mypy_grpc"),
                f"--grpc_python_out={output}",
                # Not abstract: what a servicer does not define answers UNIMPLEMENTED, as the generated code does.
                f"--mypy_grpc_out=generate_concrete_servicer_stubs:{output}",
            ],
        )
    return stub_paths(output)


def main() -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description="Generate the contract's Python stubs.")
    parser.add_argument("output", nargs="?", type=Path, default=DEFAULT_OUTPUT, help="folder to write below")
    written = generate(parser.parse_args().output.resolve())
    print(f"{len(written)} stubs are up to date")


if __name__ == "__main__":
    main()
