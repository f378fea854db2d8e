"""Tables that were measured on this machine, one for each GPU model: where they lie and whether
they hold. `tuning` writes them."""
