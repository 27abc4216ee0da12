"""Parts of `fedcal.privacy.samplers`: `words` -> `tables` -> `noise`, `polya`, `choice`."""
