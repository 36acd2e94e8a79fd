"""Experts combined online: the quantiles of the greatest rate within the lead window.

Each expert gives a point forecast at every origin (`experts`). Around each, two spreads carry its quantiles, steered by
the coverage they really achieved, and all are weighted by their trailing loss (`online`). `mixture` puts it together.
"""

from forecasting.mixture.experts import EXPERTS, Expert
from forecasting.mixture.mixture import (
    Combined,
    Panel,
    assemble,
    checked_paths,
    combine,
    first_origin,
    replay,
)
from forecasting.mixture.past import greatest

__all__ = [
    "EXPERTS",
    "Combined",
    "Expert",
    "Panel",
    "assemble",
    "checked_paths",
    "combine",
    "first_origin",
    "greatest",
    "replay",
]
