-- Hand out due deliveries to one worker, no more to a host than it has room for, and to a tenant than its share. Each
-- is leased: in the queue itself, where it is due again when the lease is over, and by the mark that arq's own workers
-- set. What a host or tenant has no room for waits outside the queue, in a line of the two, first come first served,
-- and hides nothing that is due for others.
-- KEYS none.  ARGV now override, free places, lease ms, then what read_places takes
-- Replies {now, entries dropped, next due ms or 0, {delivery, lease expiry ms, {field, value...} of the delivery, the
--   same of its job's record}...}. Entries that are no delivery, or one that has ended, are dropped.
-- uses: prelude places

local MOST_LOOKED_AT, MOST_TAKEN, ELSEWHERE_MS, LOOK_AGAIN_MS = 250, 500, 1000, 50
local now, lease_ms = now_ms(ARGV[1]), tonumber(ARGV[3])
local places, taken, parked, dropped, has_queue = {}, {}, {}, {}, {}
local most = math.min(tonumber(ARGV[2]), MOST_TAKEN)

local function place(delivery, due)
  places[#places + 1], places[#places + 2] = text(due), delivery
end

local function take(delivery, host, tenant)
  if redis.call('SET', arq_in_progress_key(delivery), '1', 'PX', text(lease_ms), 'NX') then
    took(host, tenant)
    local job = redis.call('HGETALL', job_key(job_of(delivery)))
    if #job == 0 then job = redis.call('HGETALL', gone_key(job_of(delivery))) end
    taken[#taken + 1] = {delivery, text(now + lease_ms), redis.call('HGETALL', delivery_key(delivery)), job}
    place(delivery, now + lease_ms)
  else  -- one of arq's own workers has it
    place(delivery, now + ELSEWHERE_MS)
  end
end

local function serve(line, at_most)
  local host, tenant = string.match(line, '^(%S*) ?(.*)$')
  local count = math.min(room(host, tenant), at_most, most - #taken)
  local first = count > 0 and redis.call('ZPOPMIN', waiting_key(line), count) or {}
  for i = 1, #first, 2 do
    local found = redis.call('HMGET', delivery_key(first[i]), 'status', 'tenant')
    if found[1] == 'pending' then take(first[i], host, found[2] or '') end
  end
  has_queue[line] = redis.call('EXISTS', waiting_key(line)) == 1
  if has_queue[line] then
    redis.call('ZADD', WAITING_HOSTS, text(now), line)
  else
    redis.call('ZREM', WAITING_HOSTS, line)
  end
end

local function look_at(delivery, due)
  local fields = redis.call('HMGET', delivery_key(delivery), 'host', 'status', 'next_ms', 'tenant')
  local host, status, next_ms, tenant = fields[1] or '', fields[2], fields[3], fields[4] or ''
  if status ~= 'pending' then
    dropped[#dropped + 1] = delivery
    return
  elseif tonumber(next_ms) > now then
    return place(delivery, tonumber(next_ms))
  end
  local line = host .. ' ' .. tenant
  if has_queue[line] == nil then has_queue[line] = redis.call('EXISTS', waiting_key(line)) == 1 end
  if room(host, tenant) > 0 and not has_queue[line] then return take(delivery, host, tenant) end
  has_queue[line] = true
  parked[#parked + 1] = delivery
  redis.call('ZADD', waiting_key(line), due, delivery)
  redis.call('ZADD', WAITING_HOSTS, 'NX', text(now), line)
end

even_when_full()
read_places(ARGV[2], ARGV, 4)
local has_more_lines = redis.call('ZCARD', WAITING_HOSTS) > MOST_LOOKED_AT
local lines = redis.call('ZRANGE', WAITING_HOSTS, 0, MOST_LOOKED_AT - 1)
for _, line in ipairs(lines) do serve(line, 1) end  -- one each, before any gets what is left
for _, line in ipairs(has_more_lines and {} or lines) do serve(line, most) end
local due = redis.call('ZRANGEBYSCORE', DELIVERIES, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, MOST_LOOKED_AT)
for i = 1, #due, 2 do
  if #taken < most then look_at(due[i], due[i + 1]) end
end
if #parked > 0 then redis.call('ZREM', DELIVERIES, unpack(parked)) end
if #dropped > 0 then redis.call('ZREM', DELIVERIES, unpack(dropped)) end
if #places > 0 then redis.call('ZADD', DELIVERIES, unpack(places)) end
local next_due = redis.call('ZRANGE', DELIVERIES, 0, 0, 'WITHSCORES')[2] or '0'
if redis.call('ZCARD', WAITING_HOSTS) > MOST_LOOKED_AT then next_due = text(now + LOOK_AGAIN_MS) end
return {text(now), #dropped, next_due, unpack(taken)}
