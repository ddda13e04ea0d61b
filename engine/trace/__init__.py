"""What the engine did, as data: the last steps in memory, and whole runs in a file that can be read back."""
