"""A loaded model at work: its parts, its threads, loading it, and the jobs that reach it. ``engine.loop`` conducts."""
