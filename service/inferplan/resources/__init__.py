"""The stored things that the contract names: deployments and plans."""
