"""Verbs for agents, trainers and the formats of the field, a module each."""

from hgemm_packs.generator.cli.agents import attack, mcp, serve, solve, trace

__all__ = ["attack", "mcp", "serve", "solve", "trace"]
