"""The KV cache: pages with reference counts, sequences over them, and the prefix cache."""
