"""What to deploy: from users, lengths and objectives to deployments that hold them."""
