"""The gRPC server: servicers, interceptors, conversion and errors."""
