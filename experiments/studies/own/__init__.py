"""Our own studies: audits of claimed epsilons, sites and hospitals."""
