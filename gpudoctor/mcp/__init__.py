"""gpudoctor for assistants that speak the Model Context Protocol: tools that look and tell, and never write."""
