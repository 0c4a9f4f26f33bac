"""An audit report as text and as JSON."""
