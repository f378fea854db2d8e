def handle(*library_names: str) -> object: ...
def version(handle: object, /) -> int: ...
def plan(
    handle: object,
    bf16: bool,
    m: int,
    n: int,
    k: int,
    a_transposed: bool,
    b_transposed: bool,
    lda: int,
    ldb: int,
    ldc: int,
    alignment: int,
    limits: tuple[int, ...],
    /,
) -> object: ...
def algorithms(plan: object, /) -> list[tuple[int, float, bytes]]: ...
def matmul(
    plan: object,
    index: int,
    a: int,
    b: int,
    c: int,
    workspace: int,
    workspace_bytes: int,
    stream: int,
    /,
) -> None: ...
