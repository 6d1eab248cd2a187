"""Work on users' connections and in their transactions, and advisory locks."""
