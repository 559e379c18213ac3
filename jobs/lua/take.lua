-- Hand out due deliveries to one worker, no more to a host than it has room for. Each is leased: in the queue itself,
-- where it is due again when the lease is over, and by the mark that arq's own workers set.
-- KEYS none.  ARGV now override, limit, lease ms, room of a host that is not listed, longest pause ms;
--   then per host: name, room, pause ms of what it has no room for, more pause for each after the first
-- Replies {now, entries dropped, next due ms or 0, {delivery, host, lease expiry ms}...}.
-- Entries that are no delivery are dropped.
-- uses: prelude

local now, limit, lease_ms, longest = now_ms(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local MOST_LOOKED_AT, UNLISTED_PAUSE_MS = 1000, 250
local hosts, places, taken, dropped = {}, {}, {}, {}

for i = 6, #ARGV, 4 do
  hosts[ARGV[i]] = {room = tonumber(ARGV[i + 1]), pause = tonumber(ARGV[i + 2]), step = tonumber(ARGV[i + 3])}
end

local function place(delivery, due)
  places[#places + 1], places[#places + 2] = text(due), delivery
end

local function look_at(delivery)
  local host = redis.call('HGET', delivery_key(delivery), 'host')
  if not host then
    dropped[#dropped + 1] = delivery
    return
  end
  local to = hosts[host] or {room = tonumber(ARGV[4]), pause = UNLISTED_PAUSE_MS, step = 0}
  hosts[host] = to
  if to.room < 1 then
    place(delivery, now + math.min(to.pause, longest))
    to.pause = to.pause + to.step
  elseif redis.call('SET', arq_in_progress_key(delivery), '1', 'PX', text(lease_ms), 'NX') then
    to.room = to.room - 1
    taken[#taken + 1] = {delivery, host, text(now + lease_ms)}
    place(delivery, now + lease_ms)
  else
    place(delivery, now + UNLISTED_PAUSE_MS)
  end
end

even_when_full()
for _, delivery in ipairs(redis.call('ZRANGEBYSCORE', DELIVERIES, '-inf', text(now), 'LIMIT', 0, MOST_LOOKED_AT)) do
  if #taken < limit then look_at(delivery) end
end
if #places > 0 then redis.call('ZADD', DELIVERIES, unpack(places)) end
if #dropped > 0 then redis.call('ZREM', DELIVERIES, unpack(dropped)) end
local next_due = redis.call('ZRANGE', DELIVERIES, 0, 0, 'WITHSCORES')
return {text(now), #dropped, next_due[2] or '0', unpack(taken)}
