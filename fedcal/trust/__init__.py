"""Trust models, and their registry."""

from fedcal.core.registry import registry
from fedcal.trust.base import Trust, TrustFacts
from fedcal.trust.central import Central, Local, SecAgg
from fedcal.trust.distributed import Distributed

__all__ = ["NOISY", "TRUSTS", "Central", "Distributed", "Local", "SecAgg", "Trust", "TrustFacts"]

TRUSTS: dict[str, type[Trust]] = registry(SecAgg, Central, Distributed, Local)
"""Name on the command line and in files -> trust model."""

NOISY = {name: trust for name, trust in TRUSTS.items() if trust.noise_by != "nobody"}
"""Trust models under which a finite epsilon is possible."""
