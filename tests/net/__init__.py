"""Clusters in networks of their own: racks, links with a rate, faults; and stories of nodes that fail under load."""
