"""Verbs for agents and for the formats of the field, a module each."""

from hgemm_packs.generator.cli.agents import trace

__all__ = ["trace"]
