-- Hand out due deliveries to one worker, no more to a host than it has room for. Each is leased: in the queue itself,
-- where it is due again when the lease is over, and by the mark that arq's own workers set.
-- What a host has no room for waits outside the queue, first come first served, and hides nothing that is due for
-- others.
-- KEYS none.  ARGV now override, limit, lease ms, room of a host that is not listed; then per host: name, room
-- Replies {now, entries dropped, next due ms or 0, {delivery, lease expiry ms, {field, value...} of the delivery, the
--   same of its job's record}...}. Entries that are no delivery, or one that has ended, are dropped.
-- uses: prelude

local now, limit, lease_ms, rooms = now_ms(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), {}
local MOST_LOOKED_AT, ELSEWHERE_MS = 250, 1000
local places, taken, parked, dropped, has_queue = {}, {}, {}, {}, {}
for i = 5, #ARGV, 2 do rooms[ARGV[i]] = tonumber(ARGV[i + 1]) end

local function room(host)
  return math.min(rooms[host] or tonumber(ARGV[4]), limit - #taken)
end

local function place(delivery, due)
  places[#places + 1], places[#places + 2] = text(due), delivery
end

local function take(delivery, host)
  if redis.call('SET', arq_in_progress_key(delivery), '1', 'PX', text(lease_ms), 'NX') then
    rooms[host] = (rooms[host] or tonumber(ARGV[4])) - 1
    local job = redis.call('HGETALL', job_key(job_of(delivery)))
    if #job == 0 then job = redis.call('HGETALL', gone_key(job_of(delivery))) end
    taken[#taken + 1] = {delivery, text(now + lease_ms), redis.call('HGETALL', delivery_key(delivery)), job}
    place(delivery, now + lease_ms)
  else  -- one of arq's own workers has it
    place(delivery, now + ELSEWHERE_MS)
  end
end

local function serve(host)
  local waiting = waiting_key(host)
  if room(host) > 0 then
    local first = redis.call('ZPOPMIN', waiting, room(host))
    for i = 1, #first, 2 do
      if redis.call('HGET', delivery_key(first[i]), 'status') == 'pending' then take(first[i], host) end
    end
  end
  has_queue[host] = redis.call('EXISTS', waiting) == 1
  if has_queue[host] then
    redis.call('ZADD', WAITING_HOSTS, text(now), host)
  else
    redis.call('ZREM', WAITING_HOSTS, host)
  end
end

local function look_at(delivery, due)
  local fields = redis.call('HMGET', delivery_key(delivery), 'host', 'status', 'next_ms')
  local host = fields[1]
  if fields[2] ~= 'pending' then
    dropped[#dropped + 1] = delivery
    return
  elseif tonumber(fields[3]) > now then
    return place(delivery, tonumber(fields[3]))
  end
  if has_queue[host] == nil then has_queue[host] = redis.call('EXISTS', waiting_key(host)) == 1 end
  if room(host) > 0 and not has_queue[host] then return take(delivery, host) end
  has_queue[host] = true
  parked[#parked + 1] = delivery
  redis.call('ZADD', waiting_key(host), due, delivery)
  redis.call('ZADD', WAITING_HOSTS, 'NX', text(now), host)
end

even_when_full()
for _, host in ipairs(redis.call('ZRANGE', WAITING_HOSTS, 0, MOST_LOOKED_AT - 1)) do serve(host) end
local due = redis.call('ZRANGEBYSCORE', DELIVERIES, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, MOST_LOOKED_AT)
for i = 1, #due, 2 do
  if #taken < limit then look_at(due[i], due[i + 1]) end
end
if #parked > 0 then redis.call('ZREM', DELIVERIES, unpack(parked)) end
if #dropped > 0 then redis.call('ZREM', DELIVERIES, unpack(dropped)) end
if #places > 0 then redis.call('ZADD', DELIVERIES, unpack(places)) end
local next_due = redis.call('ZRANGE', DELIVERIES, 0, 0, 'WITHSCORES')
return {text(now), #dropped, next_due[2] or '0', unpack(taken)}
