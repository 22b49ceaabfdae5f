"""Find what is near."""
