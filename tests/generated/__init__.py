"""Environments made from the tables: sound ones, in which nothing may be found, and the same with one thing changed."""
