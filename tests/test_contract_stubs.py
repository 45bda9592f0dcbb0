"""The committed stubs are what the .proto files generate today, and the vendored contract files are the real ones."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import grpc
import protovalidate
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
SERVICE = ROOT / "service"
STUB_FOLDERS = ("inferplan/v1", "buf/validate")


def contents(root: Path) -> dict[str, bytes]:
    """Every generated file below a source root, by relative path."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in STUB_FOLDERS
        for path in (root / folder).glob("*_pb2*.py*")
    }


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    output = tmp_path_factory.mktemp("stubs")
    command = [sys.executable, str(ROOT / "tools" / "generate_stubs.py"), str(output)]
    subprocess.run(command, check=True, capture_output=True, cwd=output)
    return contents(output)


def test_committed_stubs_are_up_to_date(generated: dict[str, bytes]) -> None:
    committed = contents(SERVICE)
    assert sorted(committed) == sorted(generated), "run `make proto`"
    stale = [name for name, content in generated.items() if committed[name] != content]
    assert stale == [], "run `make proto`"


def test_every_contract_file_has_stubs(generated: dict[str, bytes]) -> None:
    files = sorted((ROOT / "proto").rglob("*.proto"))
    assert files, "the contract is empty"
    for path in files:
        stub = path.relative_to(ROOT / "proto").with_suffix("").as_posix() + "_pb2"
        assert f"{stub}.py" in generated
        assert f"{stub}.pyi" in generated
        has_service = re.search(r"^service \w+", path.read_text(), re.MULTILINE) is not None
        assert (f"{stub}_grpc.py" in generated) == has_service, "a file with a service is named *_service.proto"


def declared_floor(package: str) -> str:
    """The lowest version that pyproject.toml allows of a dependency."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    requirement = next(item for item in map(Requirement, declared) if item.name == package)
    return next(specifier.version for specifier in requirement.specifier if specifier.operator == ">=")


def test_lowest_allowed_protobuf_is_the_one_that_the_stubs_need(generated: dict[str, bytes]) -> None:
    needed = {
        match.group(1).decode()
        for name, text in generated.items()
        if name.endswith("_pb2.py") and (match := re.search(rb"# Protobuf Python Version: (\S+)", text))
    }
    assert needed == {declared_floor("protobuf")}


def test_lowest_allowed_grpcio_is_the_one_that_the_stubs_need(generated: dict[str, bytes]) -> None:
    needed = {
        match.group(1).decode()
        for name, text in generated.items()
        if name.endswith("_pb2_grpc.py") and (match := re.search(rb"GRPC_GENERATED_VERSION = '(\S+)'", text))
    }
    assert needed == {declared_floor("grpcio")}


def contract_messages() -> list[type[Message]]:
    """Every message of the contract, nested ones included."""
    found: list[type[Message]] = []
    for path in sorted((SERVICE / "inferplan" / "v1").glob("*_pb2.py")):
        file = importlib.import_module(f"inferplan.v1.{path.stem}").DESCRIPTOR
        waiting = list(file.message_types_by_name.values())
        while waiting:
            descriptor = waiting.pop()
            waiting.extend(descriptor.nested_types)
            if not descriptor.GetOptions().map_entry:
                found.append(GetMessageClass(descriptor))
    return found


def test_every_constraint_of_the_contract_compiles() -> None:
    """A constraint of the wrong type or with a CEL error would else show up at the first call."""
    messages = contract_messages()
    assert messages
    for message in messages:
        protovalidate.collect_violations(message())


def test_services_can_be_stubbed_from_the_generated_code_alone() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        for name, stub in (("plan_service", "PlanServiceStub"), ("sizing_service", "SizingServiceStub")):
            getattr(importlib.import_module(f"inferplan.v1.{name}_pb2_grpc"), stub)(channel)


def without_file_options(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """A copy without the options that name packages in other languages, which each distribution sets for itself."""
    copied = descriptor_pb2.FileDescriptorProto()
    copied.CopyFrom(file)
    copied.ClearField("options")
    return copied


def test_vendored_validate_proto_says_what_the_installed_protovalidate_understands(tmp_path: Path) -> None:
    installed_module = importlib.import_module("protovalidate._gen.buf.validate.validate_pb")
    installed = descriptor_pb2.FileDescriptorProto.FromString(installed_module.desc().proto.to_binary())
    compiled = tmp_path / "validate.binpb"
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'third_party'}"]
    subprocess.run([*protoc, f"--descriptor_set_out={compiled}", "buf/validate/validate.proto"], check=True)
    (vendored,) = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file
    assert without_file_options(vendored) == without_file_options(installed)


@pytest.mark.parametrize("name", ["google/api/field_behavior.proto", "google/api/resource.proto"])
def test_vendored_google_files_are_those_of_the_installed_distribution(name: str) -> None:
    installed = Path(str(distribution("googleapis-common-protos").locate_file(name)))
    assert (ROOT / "third_party" / name).read_bytes() == installed.read_bytes()
