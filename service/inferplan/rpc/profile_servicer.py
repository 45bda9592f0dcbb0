"""ProfileService: in the contract, not in this version; every method answers UNIMPLEMENTED."""

from __future__ import annotations

from inferplan.v1 import profile_service_pb2_grpc


class ProfileServicer(profile_service_pb2_grpc.ProfileServiceServicer):
    """The generated base class refuses every method; the call interceptor says so in the contract's form."""
