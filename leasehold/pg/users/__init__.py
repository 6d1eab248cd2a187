"""What is done on connections and in transactions of the user's, and advisory locks."""
