"""Verbs for agents and trainers, a module each."""

from hgemm_packs.generator.cli.agents import attack, mcp, serve, solve

__all__ = ["attack", "mcp", "serve", "solve"]
