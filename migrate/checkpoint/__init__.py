"""Outputs that are made in parts, in a folder beside their place, so that a run that broke off can be continued."""
