"""The use cases: what the service can be asked, in domain terms."""
