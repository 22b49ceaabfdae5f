"""Search: the nearest sequences under any distance, exactly, and why they match."""
