"""Real sites: keys and certificates, the SuperLink's and the sites' processes."""
