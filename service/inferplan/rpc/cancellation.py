"""A call that ends, by its client's will or its deadline, ends the simulation that it started."""

from __future__ import annotations

import grpc

from inferplan.simulation import Cancellation


def cancelled_with(context: grpc.ServicerContext) -> Cancellation:
    """A cancellation that fires when the call ends, however it ends; at once if it has ended already."""
    cancellation = Cancellation()
    if not context.add_callback(cancellation.cancel):
        cancellation.cancel()
    return cancellation
