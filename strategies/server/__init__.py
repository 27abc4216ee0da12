"""The server of a run: Flower's messages, secure rounds, checkpoints, and the folder of a run."""
