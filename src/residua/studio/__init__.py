"""The studio: a page on this machine on which people plan a release together; it never touches data.

The spec file is the source of truth: what is clicked is written there, and what is written there is shown.
"""
