"""What KVScope requires and how a checkout gets it: the locked packages, the environment, the system's libraries.

``run.py`` is the door to it. Standard library only: all of this runs before anything is installed.
"""
