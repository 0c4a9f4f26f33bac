"""Audits: runs, measures, and the verdict."""
