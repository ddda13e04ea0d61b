"""Makes tiles count as granted: for processors whose AMX is in software (see ``check.sh``)."""

from engine.kernels import cpu

cpu._tiles_granted = lambda: True
