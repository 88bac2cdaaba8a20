"""What is asked of Windows, by its own calls: the one folder that no other system imports."""
