"""The painted blocks of a message: paragraphs, code, tables and rules in one canvas."""
