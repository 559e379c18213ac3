-- End a block of attempts as succeeded; each one's output was written before, under its attempt number.
-- KEYS none.  ARGV now override; then per job: id, attempt, 1 if it wrote an output (else 0), outcome.
-- Replies: see _settle.lua.
-- uses: prelude load announce finish settle

return settle('succeeded')
