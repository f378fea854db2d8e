"""Verbs for agents, trainers and the formats of the field, a module each."""

from hgemm_packs.generator.cli.agents import mcp, serve, trace

__all__ = ["mcp", "serve", "trace"]
