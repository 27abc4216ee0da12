"""Sum without seeing rows: contributions in a ring, hidden by masks that cancel in the sum.

`fixed_point` turns floats into integers modulo 2**64; `client_sums` adds up a client's rows;
`masking` simulates the pairwise masks of secure aggregation, with dropouts. The protocol among
sites is made of `committee` (who holds which masks), `shares` (arrays), `keys` and `messages`.
"""

from fedcal.secure_aggregation.fixed_point import ClientSums, Ring

SECURE_AGGREGATION = ("none", "masks", "protocol")
"""The server sees each contribution; masked ones, in a simulation whose seed it knows; nothing but
sums of enough contributions, by a protocol among the sites."""
