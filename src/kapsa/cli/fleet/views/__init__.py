"""Plans and rollouts as text for a terminal: pure functions of what the API has answered."""
