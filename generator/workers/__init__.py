"""Who runs jobs: this process, a process for each GPU, a Ray cluster."""
