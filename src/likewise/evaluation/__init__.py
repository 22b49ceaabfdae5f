"""Numbers from a matrix of distances and labels."""
