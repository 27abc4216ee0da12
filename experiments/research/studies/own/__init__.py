"""Our own studies: liars, audits of claimed epsilons, and from when on binning pays."""
