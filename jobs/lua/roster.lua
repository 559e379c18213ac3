-- What live workers say of themselves; those that have been silent too long are forgotten.
-- KEYS none.  ARGV now override, silence ms after which a worker is dead
-- Replies {what it says...} of the live ones.
-- uses: prelude

local now, silence_ms, live = now_ms(ARGV[1]), tonumber(ARGV[2]), {}
local entries = redis.call('HGETALL', WORKERS)
for i = 1, #entries, 2 do
  local split = string.find(entries[i + 1], ' ', 1, true)
  local beat = split and tonumber(string.sub(entries[i + 1], 1, split - 1))
  if beat and now - beat <= silence_ms then
    live[#live + 1] = string.sub(entries[i + 1], split + 1)
  else
    redis.call('HDEL', WORKERS, entries[i])
  end
end
return live
