"""Measuring: what a node's GPUs reach, and what a running endpoint does under load.

The one room that touches GPUs, processes and the endpoint under test. It ends in a profile and stores nothing itself.
"""
