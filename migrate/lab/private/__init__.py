"""Translation under encryption: who holds the vectors shows them to nobody, who holds the stitch shows it to nobody."""
