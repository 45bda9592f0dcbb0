"""What every list is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which page of a list: `page_size` 0 means the default, an empty `page_token` the first page."""

    page_size: int = 0
    page_token: str = ""
    show_deleted: bool = False
