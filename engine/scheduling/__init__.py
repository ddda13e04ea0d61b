"""Requests, streams and the scheduler that runs them together: continuous batching over a paged KV pool."""
