"""What the driver says about GPUs, and what follows for their figures."""

from __future__ import annotations

import pytest

from inferplan.catalog import load_catalog
from inferplan.errors import InvalidInputError
from inferplan.measurement.gpu_facts import GpuFacts, NodeFacts, read_gpu_state, read_node_facts
from inferplan.measurement.identify import identify_accelerator
from inferplan.measurement.node import fact_labels, fact_notes, judge, recorded_environment
from inferplan.profiles.profile import DeviceMeasurement, DeviceMeasurementKind
from support.nvml import FakeGpu, FakeNvml

GIB = 2**30


def facts_of(*gpus: FakeGpu) -> NodeFacts:
    return read_node_facts(FakeNvml(*gpus))


def test_a_sound_gpu_is_read_whole_and_not_rejected() -> None:
    facts = facts_of(FakeGpu("GPU-a"))
    assert (facts.driver_version, facts.cuda_version) == ("570.86.15", "12.8")
    (gpu,) = facts.gpus
    assert gpu == GpuFacts("NVIDIA H100 80GB HBM3", "GPU-a", 81559 * 2**20, 1980, True, 0, False, 700.0, 700.0, 0)
    assert gpu.rejected_reason == ""
    assert fact_notes(facts) == []


def test_what_the_driver_does_not_support_stays_unknown() -> None:
    gpu = FakeGpu("GPU-a", maximum_clock_mhz=None, ecc=None, uncorrected_errors=None, mig=None, processes=None)
    facts = facts_of(gpu)
    (read,) = facts.gpus
    assert (read.ecc_enabled, read.mig_enabled, read.other_processes, read.maximum_sm_clock_mhz) == (None,) * 4
    assert read.rejected_reason == ""
    assert read_gpu_state(FakeNvml(gpu), "GPU-a").clock_ratio is None
    assert "gpu-ecc" not in fact_labels(facts.gpus)


@pytest.mark.parametrize(
    ("gpu", "part"),
    [
        (FakeGpu("GPU-a", mig=1), "slice"),
        (FakeGpu("GPU-a", uncorrected_errors=3), "3 uncorrected"),
        (FakeGpu("GPU-a", processes=[17]), "1 other processes"),
    ],
)
def test_a_gpu_whose_figures_cannot_stand_for_it_is_rejected(gpu: FakeGpu, part: str) -> None:
    facts = facts_of(gpu)
    (judged,) = judge([DeviceMeasurement(DeviceMeasurementKind.MEMORY_READ, 3e12)], facts)
    assert part in judged.rejected_reason
    assert judged.rate_per_second == 3e12, "the figure is kept"
    assert part in fact_notes(facts)[0]


def test_a_measurement_over_several_gpus_is_rejected_for_any_of_them() -> None:
    facts = facts_of(FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c", mig=1))
    kind = DeviceMeasurementKind.ALL_REDUCE
    pair, whole = judge([DeviceMeasurement(kind, 1e11, gpus=2), DeviceMeasurement(kind, 1e11, gpus=3)], facts)
    assert pair.rejected_reason == ""
    assert whole.rejected_reason.startswith("GPU 2: MIG")
    link = DeviceMeasurement(DeviceMeasurementKind.DEVICE_TO_DEVICE, 1e11, gpu_index=0, peer_gpu_index=2)
    assert judge([link], facts)[0].rejected_reason.startswith("GPU 2: MIG")


def test_gpus_are_chosen_by_uuid_and_a_slice_is_refused() -> None:
    facts = facts_of(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    assert [gpu.uuid for gpu in facts.of(("GPU-b", "GPU-a")).gpus] == ["GPU-b", "GPU-a"]
    assert [gpu.uuid for gpu in facts.of(("GPU-b",)).gpus] == ["GPU-b"]
    with pytest.raises(InvalidInputError, match="GPU-slice is no whole GPU"):
        facts.of(("GPU-a", "GPU-slice"))


@pytest.mark.parametrize("mask", [0x08, 0x20, 0x40, 0x80])
def test_heat_and_power_brakes_count_as_slowing(mask: int) -> None:
    state = read_gpu_state(FakeNvml(FakeGpu("GPU-a", clock_mhz=990, reasons=mask)), "GPU-a")
    assert state.clock_ratio == 0.5
    assert len(state.slowed_by) == 1


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x04])
def test_idling_set_clocks_and_the_power_cap_do_not_reject(mask: int) -> None:
    assert read_gpu_state(FakeNvml(FakeGpu("GPU-a", reasons=mask)), "GPU-a").slowed_by == ()


def test_lower_power_and_missing_ecc_are_said_and_labelled() -> None:
    facts = facts_of(FakeGpu("GPU-a"), FakeGpu("GPU-b", ecc=0, power_limit_milliwatts=500_000))
    assert [note.partition(";")[0] for note in fact_notes(facts)] == [
        "GPU 1: ECC is off",
        "GPU 1: power is limited to 500 W of 700 W",
    ]
    labels = fact_labels(facts.gpus)
    assert (labels["gpu-ecc"], labels["gpu-mig"], labels["gpu-power-limit-watts"]) == ("on,off", "off", "700,500")


@pytest.mark.parametrize(
    ("name", "memory_bytes", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 81559 * 2**20, "h100-sxm-80gb"),  # nvidia-smi's 81559 MiB
        ("NVIDIA H100 PCIe", 81559 * 2**20, "h100-pcie-80gb"),
        ("NVIDIA A100-PCIE-40GB", 40960 * 2**20, "a100-pcie-40gb"),
    ],
)
def test_the_driver_s_name_leads_to_the_catalogue(name: str, memory_bytes: int, expected: str) -> None:
    gpus = facts_of(FakeGpu("GPU-a", name=name, memory_bytes=memory_bytes)).gpus
    assert identify_accelerator(load_catalog(), gpus, "").id == expected


def test_what_is_not_known_must_be_named() -> None:
    catalog = load_catalog()
    unknown = facts_of(FakeGpu("GPU-a", name="NVIDIA Z1")).gpus
    other_memory = facts_of(FakeGpu("GPU-a", memory_bytes=64 * GIB)).gpus
    mixed = facts_of(FakeGpu("GPU-a"), FakeGpu("GPU-b", name="NVIDIA H100 PCIe")).gpus
    for gpus, part in ((unknown, "NVIDIA Z1"), (other_memory, "64.0 GiB"), (mixed, "CUDA_VISIBLE_DEVICES")):
        with pytest.raises(InvalidInputError, match=part) as raised:
            identify_accelerator(catalog, gpus, "")
        assert raised.value.violations[0].field == "--accelerator"
    assert identify_accelerator(catalog, unknown, "h100").id == "h100-sxm-80gb"
    with pytest.raises(InvalidInputError, match="not known"):
        identify_accelerator(catalog, unknown, "no-such-gpu")


def test_only_variables_that_change_figures_are_recorded() -> None:
    environment = {"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0,1", "HF_TOKEN": "secret", "PATH": "/bin"}
    assert recorded_environment(environment) == {"CUDA_VISIBLE_DEVICES": "0,1", "NCCL_ALGO": "Ring"}
