"""The typed client that other services import."""
