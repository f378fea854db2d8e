"""The words that all rooms share: problems, genomes, jobs and their answers. Runs nothing."""
