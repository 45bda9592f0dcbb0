"""What lists are filtered and ordered by: a subset of AIP-160 and AIP-132, checked whole before any SQL is made."""

from inferplan.storage.filters.fields import FilterField, FilterKind
from inferplan.storage.filters.matching import matches
from inferplan.storage.filters.ordering import parse_order
from inferplan.storage.filters.resolve import parse_filter
from inferplan.storage.filters.sql import filter_condition

__all__ = ["FilterField", "FilterKind", "filter_condition", "matches", "parse_filter", "parse_order"]
