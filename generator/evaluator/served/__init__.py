"""The evaluator for others: a queue on disk, a process a device, doors by HTTP and MCP."""
