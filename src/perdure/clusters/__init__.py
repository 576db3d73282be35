"""Clusters that perform the jobs of queues, one file each. `perdure.ports.cluster` is what they have in common."""
