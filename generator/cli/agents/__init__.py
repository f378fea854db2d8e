"""Verbs for agents and trainers, a module each."""

from hgemm_packs.generator.cli.agents import export, mcp, serve, train

__all__ = ["export", "mcp", "serve", "train"]
