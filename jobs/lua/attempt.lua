-- Record one attempt of a delivery and what follows from it, in arq's queue as well.
-- KEYS none.  ARGV now override, delivery, job id, event, what became of the attempt, status of the delivery after it,
--   when it is tried next (ms, 0 = never), most attempts that are kept, when the attempt began (ms)
-- Replies: OK; ALREADY (this very attempt is recorded: a repeated call); ENDED (the delivery had ended before: the
--   attempt is recorded, and nothing else changed); NOT_FOUND.
-- uses: prelude note

local now, delivery, id, event, status = now_ms(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local key, log, most = delivery_key(delivery), attempts_key(delivery), tonumber(ARGV[8])
local found = redis.call('HMGET', key, 'tenant', 'status', 'attempts', 'tried', 'last_ms')
local tenant, before, attempts, tried, last = unpack(found)
if last == ARGV[9] then return 'ALREADY' end

even_when_full()
if before == 'pending' and status == 'pending' then
  redis.call('ZADD', DELIVERIES, ARGV[7], delivery)
  redis.call('DEL', arq_in_progress_key(delivery))
else
  redis.call('ZREM', DELIVERIES, delivery)
  redis.call('DEL', arq_in_progress_key(delivery), arq_job_key(delivery), arq_retry_key(delivery))
end
if not tenant then return 'NOT_FOUND' end

attempts = attempts + 1
redis.call('RPUSH', log, ARGV[5])
if attempts == 1 then redis.call('PEXPIRE', log, text(HELD_MS)) end
if attempts > most then redis.call('LTRIM', log, -most, -1) end
if before ~= 'pending' then
  redis.call('HSET', key, 'attempts', attempts, 'last_ms', ARGV[9])
  return 'ENDED'
end

redis.call('HSET', key, 'attempts', attempts, 'tried', tried + 1, 'status', status, 'next_ms', ARGV[7],
  'last_ms', ARGV[9])
if status == 'delivered' then redis.call('ZREM', undelivered_key(tenant), delivery) end
note(id, tenant, event, status, attempts, now)
return 'OK'
