"""Our studies of private prediction sets: their coverage and the cost of privacy.

`laws` draws conformity scores of known laws and releases thresholds of them, `coverage` compares
how often these cover with what is promised and with sets that are not private, `users` protects
whole clients on the shipped networks.
"""
