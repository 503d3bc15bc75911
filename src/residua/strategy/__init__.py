"""Measurements: what is asked of the data, with which noise, and the error of every answer drawn from it."""
