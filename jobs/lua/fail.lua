-- End a block of attempts as failed, for good.
-- KEYS none.  ARGV now override; then per job: id, attempt, 0, outcome (holds the error).  Replies: see _settle.lua.
-- uses: prelude load announce finish settle

return settle('failed')
