"""What `jobs` promises, checked on fakeredis and on a real Valkey alike."""
