"""The kernels of hgemm_packs under a name that verifiers finds: --env.taskset.id hgemm-kernels."""

from hgemm_packs.generator.rl.verifiers_environment import (
    KernelEnv,
    KernelEnvConfig,
    KernelTaskset,
    KernelTasksetConfig,
)

__all__ = ["KernelEnv", "KernelEnvConfig", "KernelTaskset", "KernelTasksetConfig"]
