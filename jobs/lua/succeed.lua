-- End a block of attempts as succeeded; each one's output was written before, under its attempt number.
-- KEYS none.  ARGV now override; then per job: id, attempt, outcome.  Replies: see _settle.lua.
-- uses: prelude finish settle

return settle('succeeded')
