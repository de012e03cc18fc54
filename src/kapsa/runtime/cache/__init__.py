"""The cache: informers list and watch, stores keep what they saw, and one cache shares them all."""
