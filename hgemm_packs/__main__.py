"""`python -m hgemm_packs`: the `hgemm-packs` command without its script."""

from .cli import main

main()
