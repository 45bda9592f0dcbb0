"""Measurements from nodes and benchmark runs, and the coefficients fitted from them."""
