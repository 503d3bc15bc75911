"""Dense and Kronecker linear algebra; nothing here knows about privacy."""
