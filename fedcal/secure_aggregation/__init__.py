"""Sum without seeing rows: contributions in a ring, hidden by masks that come off the sum.

`fixed_point` turns floats into integers modulo 2**64; `client_sums` adds up a client's rows;
`masking` simulates the masks of secure aggregation. The protocol among sites is made of `roster`
(who holds which masks), `keys` and `messages`.
"""

from fedcal.secure_aggregation.fixed_point import ClientSums, Ring

SECURE_AGGREGATION = ("none", "masks", "protocol")
"""The server sees each contribution; masked ones, in a simulation whose seed it knows; nothing but
sums of enough contributions, by a protocol among the sites."""
