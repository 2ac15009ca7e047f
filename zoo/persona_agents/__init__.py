"""One module for each model, with the function that ParlAI calls to get it."""
