"""Where hgemm_packs stands in torch's own way: products of programs that nobody edits."""
