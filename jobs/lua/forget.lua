-- Drop the index entries of records whose time is up: the records went by themselves, a sorted set's members can't.
-- KEYS none.  ARGV now override, limit
-- Replies how many were dropped.
-- uses: prelude

local due = redis.call('ZRANGEBYSCORE', FORGET, '-inf', text(now_ms(ARGV[1])), 'LIMIT', 0, ARGV[2])
for _, entry in ipairs(due) do
  redis.call('ZREM', index_key(string.sub(entry, 33)), string.sub(entry, 1, 32))
end
if #due > 0 then redis.call('ZREM', FORGET, unpack(due)) end
return #due
