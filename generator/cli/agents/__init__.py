"""Verbs for agents and trainers, a module each."""

from hgemm_packs.generator.cli.agents import mcp, serve

__all__ = ["mcp", "serve"]
