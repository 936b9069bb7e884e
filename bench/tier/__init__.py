"""Costs and gains of a tier: small writes, reads below its rules, many dirty objects, reads beside its cleaner."""
