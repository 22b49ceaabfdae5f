"""Compagnon, Lefebvre, Duffner & Garcia (2020): Sequence metric learning as synchronization of recurrent networks."""
