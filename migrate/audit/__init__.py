"""Audits: measures, arms, and the verdict."""
