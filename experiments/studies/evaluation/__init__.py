"""Studies of federated evaluation, on populations whose metrics are known (`worlds`).

`errors` measures Table 1 of Cormode & Markov, `intervals` how often intervals hold the truth.
"""
