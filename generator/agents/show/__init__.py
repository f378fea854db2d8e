"""A run of agents as its watchers see it: on a terminal while it runs, and as one page of HTML."""
