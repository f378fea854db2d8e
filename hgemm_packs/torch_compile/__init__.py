"""torch.compile: how a compiled graph gets kernels, without a break.

Dynamo, torch.compile's front end, knows no C functions. `follow` has it put an operator of ours in
place of `matmul` and of a layer's product as soon as torch._dynamo is imported, and imports nothing
itself. `operators` are these operators: traced, each becomes torch's own product, or the node of a
kernel where `choice` finds one in the tables. `lowering` tells Inductor to call matmul for that
node, into memory that Inductor planned. `backend` finds products in programs that never call us.
"""
