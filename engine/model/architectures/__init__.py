"""One short module per architecture; each has ``build(b) -> Program``."""
