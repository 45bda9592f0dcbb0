"""Which accelerator of the catalogue the GPUs of a node are."""

from __future__ import annotations

from inferplan.catalog import Accelerator, Catalog
from inferplan.errors import InvalidInputError, NotFoundError
from inferplan.measurement.gpu_facts import GpuFacts

MEMORY_TOLERANCE = 0.03
"""NVML counts what the driver reserves, a runtime does not: about 2 % between them (81559 MiB and 79.19 GiB, H100)."""


def identify_accelerator(catalog: Catalog, gpus: tuple[GpuFacts, ...], given: str) -> Accelerator:
    """The accelerator `given` by name, or else the one that NVML's name and memory say.

    Raises InvalidInputError, naming --accelerator, for a name that is not known, a mixed node, or GPUs that the
    catalogue does not know.
    """
    if given:
        try:
            return catalog.accelerator(given.removeprefix("accelerators/"))
        except NotFoundError as error:
            raise InvalidInputError.single("--accelerator", str(error)) from None
    names = sorted({gpu.name for gpu in gpus})
    if len(names) > 1:
        raise InvalidInputError.single(
            "--accelerator",
            f"this node has several kinds of GPU ({', '.join(names)}); measure one kind at a time, chosen with "
            "CUDA_VISIBLE_DEVICES",
        )
    found = [
        accelerator
        for accelerator in catalog.accelerators()
        if names[0].lower() in (name.lower() for name in (accelerator.display_name, *accelerator.aliases))
        and abs(accelerator.visible_memory_bytes / gpus[0].memory_bytes - 1) <= MEMORY_TOLERANCE
    ]
    if len(found) == 1:
        return found[0]
    known = ", ".join(accelerator.id for accelerator in catalog.accelerators())
    raise InvalidInputError.single(
        "--accelerator",
        f"must be given, since the catalogue has no accelerator that calls itself {names[0]!r} with "
        f"{gpus[0].memory_bytes / 2**30:.1f} GiB; known: {known}",
    )
