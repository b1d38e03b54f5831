"""What renders a verdict."""
