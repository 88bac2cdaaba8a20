"""What to install so that it works here: torch stack, driver, toolkit, container support; worked out from tables."""
