"""The papers' measurements, live: nodes and a lake in networks whose links have the published ratios."""
