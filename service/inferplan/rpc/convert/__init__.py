"""Protobuf messages to domain types and back: the one place where both are known."""
