"""Deployments: real sites, a SuperLink, and what lies between them."""
