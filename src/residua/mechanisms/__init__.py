"""The methods of planning, one a file. Each turns a workload into a mechanism at privacy cost 1."""
