"""Published models of persona_agents."""
