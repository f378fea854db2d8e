"""Builds the two abi3 extensions; everything else about the package is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup


def extension(name: str, folder: str) -> Extension:
    """One C11 extension from the sources of a folder, good for every CPython >= 3.10."""
    return Extension(
        f"hgemm_packs.{name}",
        sources=sorted(glob(f"csrc/{folder}/*.c")),
        depends=sorted(glob(f"csrc/{folder}/*.h")),
        define_macros=[("Py_LIMITED_API", "0x030A0000")],
        extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra"]
        + ["-Wno-missing-field-initializers", "-fvisibility=hidden"],
        libraries=["dl"],
        py_limited_api=True,
    )


setup(
    ext_modules=[extension("_C", "launcher"), extension("_cublaslt", "cublaslt")],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
