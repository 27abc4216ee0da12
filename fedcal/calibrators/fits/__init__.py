"""How calibrators are fitted: closed forms and numerical minimisation, on arrays."""
