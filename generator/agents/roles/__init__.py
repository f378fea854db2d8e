"""The roles, each a module that works with a language model or with a built-in rule: `reasoner`,
`synthesizer`, `compiler`, `verifier`, `profiler`, `red_team`."""
