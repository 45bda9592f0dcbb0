"""Renders a policy and a configuration for provisioning systems. Pure: text in, text out."""

from inferplan.autoscaling.rendering.registry import Target, known_targets, render
from inferplan.autoscaling.rendering.request import RenderedFile, Rendering, RenderingLoss, RenderingRequest

__all__ = ["RenderedFile", "Rendering", "RenderingLoss", "RenderingRequest", "Target", "known_targets", "render"]
