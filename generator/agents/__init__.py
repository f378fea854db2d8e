"""Agents that look for a kernel of one problem: roles that work with a language model or with a
built-in rule, and `orchestrator`, which branches, pays what pays and remembers the rest."""
