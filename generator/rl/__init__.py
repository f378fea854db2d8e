"""Reinforcement learning of language models on kernels: rewards, environments, exports, training.

An action is a genome of a family as JSON text. `reward` says what an answer is worth, `judges` who
answers (a recording or the evaluator), `episode` what a model is told after each turn. Trainers
meet the same episodes by `trl_environment` and `verifiers_environment`, and by lines that
`exports` makes of a run; `stages` trains with trl's own loops. Only the last three need the extra
`rl` or `verifiers`, and import these where they use them.
"""
