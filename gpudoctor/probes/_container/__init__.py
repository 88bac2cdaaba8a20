"""Containers from both sides: inside one, and the engines of a host."""
