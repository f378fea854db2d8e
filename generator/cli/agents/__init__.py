"""Verbs for agents, trainers and the formats of the field, a module each."""

from hgemm_packs.generator.cli.agents import admit, attack, export, mcp, serve, solve, trace, train

__all__ = ["admit", "attack", "export", "mcp", "serve", "solve", "trace", "train"]
