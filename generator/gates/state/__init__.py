"""What a kernel keeps from launch to launch, and what lies round its operands."""
