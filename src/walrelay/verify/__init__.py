"""Whether a destination holds what its source holds, proved while both run."""
