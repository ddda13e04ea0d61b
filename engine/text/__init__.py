"""Text in and out: tokenizer, chat templates, incremental text of a reply, stop strings, reasoning."""
