"""The same conversation for the clients of every language; see README.md."""
