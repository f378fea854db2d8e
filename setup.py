"""Builds the two abi3 extensions; everything else about the package is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

# torch's exceptions pass through C: functions that it calls, and that call it.
C_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fvisibility=hidden", "-fexceptions"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-missing-field-initializers"]
# The same bytes from every folder: CPython's own flags ask for debug information, which is full of
# paths, of the headers of whoever built it too.
REPRODUCIBLE = ["-g0", f"-ffile-prefix-map={Path.cwd()}=."]


def extension(name: str, folder: str) -> Extension:
    """One C11 extension from the sources below a folder, good for every CPython >= 3.10."""
    sources = Path("csrc") / folder
    return Extension(
        f"hgemm_packs.{name}",
        sources=sorted(map(str, sources.rglob("*.c"))),
        depends=sorted(map(str, sources.rglob("*.h"))),
        include_dirs=[str(sources)],
        define_macros=[("Py_LIMITED_API", "0x030A0000")],
        extra_compile_args=[*C_FLAGS, *REPRODUCIBLE, *WARNINGS],
        libraries=["dl", "m"],
        py_limited_api=True,
    )


setup(
    ext_modules=[extension("_C", "launcher"), extension("_cublaslt", "cublaslt")],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
