"""The processes of a real site: Flower's client runtime, without the steps a site must not take."""
