"""Markdown as it streams in: parsed block by block into plain data, without Qt."""
