"""How a model is divided among nodes, and what that is predicted to do."""
